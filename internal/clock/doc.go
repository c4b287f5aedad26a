// Package clock is a slow, exact model of the clock that bpf/clock.h computes
// in the kernel: fluid weighted fair queueing with burst credit, in rational
// numbers. It is the reference that the C code is tested against, and never
// part of the datapath: no kernel calls, no time of its own, no concurrency.
//
// Fluid fair queueing (generalised processor sharing) is from Parekh and
// Gallager, "A Generalized Processor Sharing Approach to Flow Control in
// Integrated Services Networks: The Single-Node Case", IEEE/ACM Transactions
// on Networking 1(3), 1993; finish tags in virtual time are from Demers,
// Keshav and Shenker, "Analysis and Simulation of a Fair Queueing Algorithm",
// SIGCOMM 1989.
package clock
