package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
)

// branch is a node and the lines that are drawn in front of it.
type branch struct {
	node   *api.Node
	prefix string
}

// branches orders nodes as a tree: hosts first, then users, cgroups and units, then processes. A node without a parent
// in the list is a root. If parents form a ring, one of its nodes is a root. Therefore every node comes exactly once.
func branches(nodes []api.Node, unicode bool) []branch {
	known, children := map[uint32]bool{}, map[uint32][]*api.Node{}
	for _, n := range nodes {
		known[n.ID] = true
	}
	for i := range nodes {
		parent := nodes[i].Parent
		if !known[parent] || parent == nodes[i].ID {
			parent = 0
		}
		children[parent] = append(children[parent], &nodes[i])
	}
	for _, siblings := range children {
		slices.SortFunc(siblings, compareNodes)
	}
	fork, last, bar := "|- ", "`- ", "|  "
	if unicode {
		fork, last, bar = "├─ ", "└─ ", "│  "
	}
	var out []branch
	seen := map[*api.Node]bool{}
	var walk func(n *api.Node, own, below string)
	walk = func(n *api.Node, own, below string) {
		if seen[n] {
			return
		}
		seen[n] = true
		out = append(out, branch{node: n, prefix: own})
		inner := children[n.ID]
		for i, child := range inner {
			if i < len(inner)-1 {
				walk(child, below+fork, below+bar)
			} else {
				walk(child, below+last, below+"   ")
			}
		}
	}
	for _, root := range children[0] {
		walk(root, "", "")
	}
	for i := range nodes { // rings
		walk(&nodes[i], "", "")
	}
	return out
}

func compareNodes(a, b *api.Node) int {
	return cmp.Or(
		cmp.Compare(kindOrder(a.Subject.Kind), kindOrder(b.Subject.Kind)),
		cmp.Compare(len(a.Subject.ID)*asNumber(a), len(b.Subject.ID)*asNumber(b)),
		strings.Compare(a.Subject.ID, b.Subject.ID),
		cmp.Compare(a.ID, b.ID),
	)
}

// asNumber returns 1 for a process and 0 for other nodes. It is a factor of the length that precedes compares first.
// Process ids therefore compare as numbers, and other names as text.
func asNumber(n *api.Node) int {
	if n.Subject.Kind == api.KindPID {
		return 1
	}
	return 0
}

func kindOrder(k api.Kind) int {
	order := []api.Kind{api.KindLink, api.KindHost, api.KindTo, api.KindUser, api.KindGroup, api.KindUnit, api.KindContainer, api.KindCgroup, api.KindPID}
	if i := slices.Index(order, k); i >= 0 {
		return i
	}
	return len(order)
}

// unicodeLocale reports whether the terminal shows the Unicode characters for lines, according to the locale.
func unicodeLocale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := getenv(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
