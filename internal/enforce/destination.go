package enforce

import "net/netip"

// Destinations say which nodes of KindDestination hold for a connection, by its peer's
// address and the service's port: of each book the first rule that matches.
type Destinations struct {
	Prefixes []DestinationPrefix // not changed any more by who gives them: the same list is the same
	Uses     []DestinationUse
}

// DestinationPrefix is a prefix that a rule of a book names, with all rules of the book
// that cover it, in their order; the longest prefix of an address counts.
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

// DestinationUse is where a rule holds.
type DestinationUse struct {
	Rule  uint32
	Scope uint32 // the node of a tree of processes, 0 with RuleEverybody
	Node  uint32 // of KindDestination; 0 = it matches, and limits nothing
}

const (
	// BookAdmin is the administrator's; other books are for the processes of the user of that id.
	BookAdmin = ^uint32(0)
	// RuleEverybody in a rule's number: it holds for all whom its owner may limit.
	RuleEverybody = uint32(1) << 31
	// RuleTCP likewise: it is for that protocol only. Without one of these it is for both.
	RuleTCP = uint32(1) << 30
	// RuleUDP is the same for UDP.
	RuleUDP = uint32(1) << 29
	// RuleFlags are all that a rule's number says of it.
	RuleFlags = RuleEverybody | RuleTCP | RuleUDP
	// MostDestinationRules may cover one prefix.
	MostDestinationRules = 16
	// MostDestinationPrefixes there may be in all.
	MostDestinationPrefixes = 131072
)
