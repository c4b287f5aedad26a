// Package shaping enforces limits on ingress and on non-TCP egress. For each of the two it owns a pair of devices
// with a queueing discipline, and one class for each limited node. It also owns the programs that lead packets
// through the pair and back to where they came from. The devices for ingress exist only while a limit on ingress is
// in force. The devices for egress exist in each network namespace where a limited socket has sent more than its
// share. The package decides nothing about limits, and leaves TCP egress to enforce/pacing.
package shaping
