"""Tables of users that collections read."""
