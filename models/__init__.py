"""Builders of small models with alike lanes, and the `.onnx` files that they build.

README.md says what each model is; `models.catalog.CATALOG` which call builds which file.
"""
