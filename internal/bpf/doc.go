// Package bpf owns the kernel object: the generated code, loading it with the
// programs that the running kernel lacks left out, attaching, pinning. It
// never decides what is limited.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package bpf -type nn_node -type nn_limit -type nn_clock_key -type nn_clock -type nn_class_key -type nn_class -type nn_socket -type nn_buffer -type nn_policy -type nn_task -type nn_task_record -type nn_member_record -type nn_egress_event -type nn_queue_event -type nn_exec_event -type nn_socket_seen -type nn_fault -type nn_event -type nn_unknown -type nn_volume -type nn_destination_key -type nn_destination_entry -type nn_destination -type nn_destination_use -type nn_peer_met -type nn_destinations_flags -type nn_node_kind -type nn_node_flags -type nn_socket_flags -type nn_direction -type nn_owner netnice ../../bpf/netnice.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package bpf -type nn_shape_fault -type nn_device_flags -type nn_found shaping ../../bpf/shaping.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -go-package bpf -type nn_send_fault -type nn_lane -type nn_gate -type nn_buffer_record sending ../../bpf/sending.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
