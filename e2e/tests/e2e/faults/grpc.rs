//! Limits, fairness and guards of the gRPC services.
