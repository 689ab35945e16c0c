"""Tools as users write them: functions, their context, and postconditions."""
