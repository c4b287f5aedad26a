// Package shaping enforces limits on what comes in. It owns a pair of devices
// with a queueing discipline, one class for each limited node, and the programs
// that lead received packets through it and back to where they came from. All of
// that exists only while a limit on what comes in stands. It decides nothing
// about limits, and leaves what is sent to enforce/pacing.
package shaping
