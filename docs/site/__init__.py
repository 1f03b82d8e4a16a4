"""The site of the documentation: its navigation, what is made of code, its build."""
