package enforce

import "net/netip"

// Destinations says which nodes of KindDestination hold for a connection, by its peer's address and the service's
// port. In each rule set the first rule that matches counts.
type Destinations struct {
	Prefixes []DestinationPrefix // the caller never changes it again: the same list has the same content
	Uses     []DestinationUse
}

// DestinationPrefix is a prefix that a rule of a rule set names. Its list has every rule of that set that covers
// the prefix, in the order of the set. For an address the longest prefix counts.
type DestinationPrefix struct {
	Book   uint32
	Prefix netip.Prefix
	Rules  []DestinationRule // at most MostDestinationRules
}

// DestinationRule is a rule for some ports of a prefix.
type DestinationRule struct {
	Rule             uint32 // its number; RuleFlags are bits of it
	PortFrom, PortTo uint16
}

// DestinationUse binds a rule to the scope in which it holds.
type DestinationUse struct {
	Rule  uint32
	Scope uint32 // the node of a tree of processes, 0 with RuleEverybody
	Node  uint32 // of KindDestination; 0 = the rule matches, and limits nothing
}

const (
	// BookAdmin is the rule set of the administrator. Every other number is a user id, and its rule set is for the
	// processes of that user.
	BookAdmin = ^uint32(0)
	// RuleEverybody is a bit of a rule's number: the rule holds for every process that its owner may limit.
	RuleEverybody = uint32(1) << 31
	// RuleTCP is the bit of a rule for TCP only. A rule without RuleTCP and RuleUDP is for both protocols.
	RuleTCP = uint32(1) << 30
	// RuleUDP is the bit of a rule for UDP only.
	RuleUDP = uint32(1) << 29
	// RuleFlags is the mask of all flags in a rule's number.
	RuleFlags = RuleEverybody | RuleTCP | RuleUDP
	// MostDestinationRules bounds the rules that cover one prefix.
	MostDestinationRules = 16
	// MostDestinationPrefixes bounds the number of prefixes in all.
	MostDestinationPrefixes = 131072
)

// ProtocolFlag returns the flag in the number of a rule for "tcp" or "udp" only; 0 for both.
func ProtocolFlag(protocol string) uint32 {
	switch protocol {
	case "tcp":
		return RuleTCP
	case "udp":
		return RuleUDP
	}
	return 0
}
