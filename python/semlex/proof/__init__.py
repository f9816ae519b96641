"""`semlex prove`: scenarios that kill, crash, damage and overload, and compare what is stored with what must be."""
