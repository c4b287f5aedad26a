package reference

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// headerPart is a comment of the header with the definition behind it: of a constant or a function.
	headerPart = regexp.MustCompile(`/\*\s((?:[^*]|\*[^/])*)\*/\n(#define [^\n]*|static inline [^{]*)`)
	aDefine    = regexp.MustCompile(`(?m)^#define\s+([A-Z_]\w*)[ \t]+(\S[^\n]*?)(?:\s*/\*\s*(.*?)\s*\*/)?$`)
	aStruct    = regexp.MustCompile(`(?s)struct (netnice_\w+) \{\n(.*?)\n\};`)
	aMember    = regexp.MustCompile(`(?m)^\s*(uint\d+_t) (\w+);(?:\s*/\*\s*(.*?)\s*\*/)?$`)
	aFunction  = regexp.MustCompile(`^static inline (\w+ (netnice_[sg]et(?:priority)?|netnice_reserve|[sg]et_power)\([^)]*\))`)
	aLabel     = regexp.MustCompile(`\b(Level|Value|Unit|Range|Errors): `)
)

// optionLabels are the parts of a comment on a socket option, in their order.
func optionLabels() []string { return []string{"Level", "Value", "Unit", "Range", "Errors"} }

// headerComment joins the lines of a comment in C.
func headerComment(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "\n *", "\n")), " ")
}

// labelled divides a comment at its labels. The part before the first label has the label "".
func labelled(comment string) map[string]string {
	parts, label := make(map[string]string), ""
	for {
		at := aLabel.FindStringSubmatchIndex(comment)
		if at == nil {
			parts[label] = strings.TrimSpace(comment)
			return parts
		}
		parts[label] = strings.TrimSpace(comment[:at[0]])
		label, comment = comment[at[2]:at[3]], comment[at[1]:]
	}
}

// optionsPage returns the page of socket options, from the header's comments.
func optionsPage(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "include/netnice.h"))
	if err != nil {
		return "", err
	}
	header := string(text)
	var options, functions strings.Builder
	var constants [][]string
	about := make(map[string]string) // comments before constants
	for _, m := range headerPart.FindAllStringSubmatch(header, -1) {
		comment, part := headerComment(m[1]), m[2]
		if f := aFunction.FindStringSubmatch(part); f != nil {
			fmt.Fprintf(&functions, "### %s\n\n%s\n%s\n\n", f[2], block(strings.Join(strings.Fields(f[1]), " ")+";"), prose(comment))
			continue
		}
		d := aDefine.FindStringSubmatch(part)
		if d == nil {
			continue
		}
		about[d[1]] = comment
		if !aLabel.MatchString(comment) {
			continue
		}
		parts := labelled(comment)
		rows := [][]string{{"number", d[2]}}
		for _, label := range optionLabels() {
			rows = append(rows, []string{strings.ToLower(label), prose(parts[label])})
		}
		fmt.Fprintf(&options, "### %s\n\n%s\n\n%s\n", d[1], prose(parts[""]), table([]string{d[1], ""}, rows))
	}
	for _, d := range aDefine.FindAllStringSubmatch(header, -1) {
		if !aLabel.MatchString(about[d[1]]) {
			constants = append(constants, []string{code(d[1]), code(d[2]), prose(cmp.Or(d[3], about[d[1]]))})
		}
	}
	return "# Socket options\n\n" +
		"`include/netnice.h` defines them. Programs in other languages need the numbers only. The man page netnice(3) says more.\n" +
		"On kernels before 5.18 each error is EPERM.\n\n" +
		"## Options\n\n" + options.String() +
		"## Constants\n\n" + table([]string{"name", "value", "means"}, constants) +
		"\n## Structs\n\n" + structs(header) +
		"## Functions\n\n" + strings.TrimRight(functions.String(), "\n") + "\n", nil
}

// structs returns the structs of the header.
func structs(header string) string {
	var b strings.Builder
	for _, m := range aStruct.FindAllStringSubmatch(header, -1) {
		var rows [][]string
		for _, f := range aMember.FindAllStringSubmatch(m[2], -1) {
			rows = append(rows, []string{code(f[2]), code(f[1]), prose(f[3])})
		}
		fmt.Fprintf(&b, "### struct %s\n\n%s\n", m[1], table([]string{"member", "type", "is"}, rows))
	}
	return b.String()
}
