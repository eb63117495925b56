//! Servers on an etcd cluster that loses members or quorum, or is rolled back.
