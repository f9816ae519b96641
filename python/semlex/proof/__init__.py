"""`semlex prove`: scenarios that kill, crash, damage and overload semlex, and then check the stored data."""
