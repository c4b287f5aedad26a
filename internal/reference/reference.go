// Package reference writes the pages of docs/reference from the code: commands, API, socket options, metrics, events,
// exit codes, bounds and keys of rules. It owns the form of these pages and none of their content. It is not part of
// the netnice program.
package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run ./cmd/genreference ../..

// Command is the command that makes the pages.
const Command = "make reference"

// folder is where the pages are, below the root of the source.
const folder = "docs/reference"

// Page is one page of the reference.
type Page struct {
	Name  string // of the file
	About string // what it has, for the list of pages
	text  func(root string) (string, error)
}

// Pages returns the pages that are made from the code.
func Pages() []Page {
	return []Page{
		{"cli.md", "commands, flags, examples", commandsPage},
		{"exit-codes.md", "exit codes of the commands", exitCodesPage},
		{"rules.md", "keys of rule files", rulesPage},
		{"limits.md", "fields of a limit with their ranges, and quotas of users", limitsPage},
		{"api.yaml", "HTTP API of the daemon, as OpenAPI 3.1", apiPage},
		{"events.md", "events that the daemon sends", eventsPage},
		{"metrics.md", "figures for Prometheus", metricsPage},
		{"socket-options.md", "socket options and functions for programs", optionsPage},
	}
}

// Text returns the page. Root is the root of the source.
func (p Page) Text(root string) (string, error) {
	text, err := p.text(root)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", p.Name, err)
	}
	return p.firstLine() + "\n" + text, nil
}

// firstLine says by which command the page is made.
func (p Page) firstLine() string {
	if strings.HasSuffix(p.Name, ".yaml") {
		return "# Made from the code by `" + Command + "`: do not edit."
	}
	return "<!-- Made from the code by `" + Command + "`: do not edit. -->"
}

// Index returns the list of pages.
func Index() Page {
	return Page{"README.md", "", func(string) (string, error) {
		rows := [][]string{}
		for _, p := range append(Pages(), Page{Name: "kernels.md", About: "what netnice uses of Linux, and on which kernels it was tried"}) {
			rows = append(rows, []string{"[" + p.Name + "](" + p.Name + ")", p.About})
		}
		return "# Reference\n\nThese pages follow from the code, and a test fails if one is out of date.\nOf kernels.md that holds for the table.\n\n" + table([]string{"page", "has"}, rows), nil
	}}
}

// Write writes all pages below the root of the source.
func Write(root string) error {
	for _, p := range append(Pages(), Index()) {
		text, err := p.Text(root)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, folder, p.Name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
