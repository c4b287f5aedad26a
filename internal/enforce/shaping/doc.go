// Package shaping enforces limits on what comes in, and on what is sent and is no
// TCP. For each of the two it owns a pair of devices with a queueing discipline,
// one class for each limited node, and the programs that lead packets through it
// and back to where they came from. That exists only while a limit on what comes
// in stands, or since a limited socket has sent more than its share: for what is
// sent in each network namespace where that was. It decides
// nothing about limits, and leaves what is sent by TCP to enforce/pacing.
package shaping
