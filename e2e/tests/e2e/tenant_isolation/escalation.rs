//! Escalation through labels, roles, initializers and wildcard views.
