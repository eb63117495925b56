//! Memory that requests and answers hold while they are sent.
