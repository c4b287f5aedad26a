// Package clocktest runs the C code of bpf/clock.h in the kernel, on a time
// and on charges that a test passes in. Tests only: nothing is attached,
// pinned or left behind.
package clocktest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package clocktest -type nn_test_mode clock ../../../bpf/clock_test.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
