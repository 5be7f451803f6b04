"""The cost search: parcels filled again, cheaper, within a counted effort."""
