DEBUG_BUILD: bool
__version__: str
__all__: list[str]
