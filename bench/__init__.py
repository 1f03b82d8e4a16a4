"""Speed, measured: ratios within one run, never asserted by a test."""
