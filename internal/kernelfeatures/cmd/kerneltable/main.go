// Command kerneltable writes the table of docs/reference/kernels.md: it probes the kernel
// that it runs on and, in test machines, Debian's, and puts what it found
// between the table's marks in the file:
//
//	go run ./internal/kernelfeatures/cmd/kerneltable [-w] docs/reference/kernels.md
//
// Without -w it prints the table only. It needs root, and what package vm needs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strings"

	"github.com/netnice/netnice/internal/kernelfeatures"
	"github.com/netnice/netnice/internal/testutil/vm"
)

const (
	beginMark = "<!-- table: begin -->\n"
	endMark   = "<!-- table: end -->\n"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kerneltable:", err)
		os.Exit(125)
	}
}

// column is one kernel of the table.
type column struct {
	Title   string
	Release string
	Cells   map[string]string
	Rows    []row
}

// row is a feature, the same in every column.
type row struct{ Name, Title, Since string }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kerneltable", flag.ContinueOnError)
	probe := flags.Bool("probe", false, "print what this kernel offers, as JSON, and end")
	also := flags.String("also", "", "probe a bootable image `file`, built from source, too")
	write := flags.Bool("w", false, "write the file instead of printing the table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *probe {
		return json.NewEncoder(os.Stdout).Encode(look(ctx))
	}
	columns := []column{}
	for _, kernel := range []string{*also, "6.1", "6.12"} {
		if kernel == "" {
			continue
		}
		c, err := guest(ctx, kernel)
		if err != nil {
			return err
		}
		c.Title = "Debian 12, emulated"
		if kernel == *also {
			c.Title = "built from source, emulated"
		}
		columns = append(columns, c)
	}
	here := look(ctx)
	here.Title = "not emulated"
	table := markdown(append(columns, here))
	if flags.NArg() == 0 || !*write {
		_, err := os.Stdout.WriteString(table)
		return err
	}
	return replace(flags.Arg(0), table)
}

// look probes the running kernel.
func look(ctx context.Context) column {
	f := kernelfeatures.Probe(ctx)
	c := column{Release: f.Release, Cells: map[string]string{}}
	for _, n := range f.List() {
		if setting(n.Name) {
			continue
		}
		c.Rows = append(c.Rows, row{n.Name, n.Title, n.MinKernel})
		switch {
		case n.Have:
			c.Cells[n.Name] = "yes"
		case n.Unknown():
			c.Cells[n.Name] = "not run"
		case errors.Is(n.Err, kernelfeatures.ErrAbsent):
			c.Cells[n.Name] = "**no**"
		default:
			c.Cells[n.Name] = "**refused** (" + lastPart(n.Err) + ")"
		}
	}
	return c
}

// setting reports whether a feature is about the machine's set-up, not its kernel.
func setting(name string) bool {
	switch name {
	case "Root", "CapBPF", "CapNetAdmin", "CapPerfmon", "CapSysAdmin", "BPFFS", "CgroupV2", "CgroupRoot", "HostPIDs", "Systemd":
		return true
	}
	return false
}

func lastPart(err error) string {
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:][1:]
}

// guest probes another kernel by running this same program in it.
func guest(ctx context.Context, kernel string) (column, error) {
	self, err := os.Executable()
	if err != nil {
		return column{}, fmt.Errorf("find own program: %w", err)
	}
	res, err := vm.Run(ctx, vm.Config{
		Kernel: kernel, Program: self, Args: []string{"-probe"}, Name: path.Base(os.Args[0]), Stderr: os.Stderr,
	})
	if err != nil {
		return column{}, err
	}
	c := column{}
	if err := json.NewDecoder(bytes.NewReader(res.Stdout)).Decode(&c); err != nil {
		return c, fmt.Errorf("read what Linux %s offers: %w", kernel, err)
	}
	return c, nil
}

func markdown(columns []column) string {
	var out strings.Builder
	out.WriteString("| feature | since |")
	for _, c := range columns {
		fmt.Fprintf(&out, " %s<br>%s |", c.Release, c.Title)
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, r := range columns[0].Rows {
		since := r.Since
		if since == "" {
			since = "–"
		}
		fmt.Fprintf(&out, "| %s | %s |", r.Title, since)
		for _, c := range columns {
			fmt.Fprintf(&out, " %s |", c.Cells[r.Name])
		}
		out.WriteString("\n")
	}
	return out.String()
}

// replace puts the table between the marks of a file.
func replace(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	before, rest, found := strings.Cut(string(text), beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return fmt.Errorf("write table: %s lacks the lines %q and %q", file, strings.TrimSpace(beginMark), strings.TrimSpace(endMark))
	}
	if err := os.WriteFile(file, []byte(before+beginMark+table+endMark+after), 0o644); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
