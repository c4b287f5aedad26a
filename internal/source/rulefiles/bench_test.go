package rulefiles

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// BenchmarkExec measures the cost of one exec: reading the process, and comparing it with up to a thousand
// rules that all do not match.
func BenchmarkExec(b *testing.B) {
	programs := func(i int) string { return fmt.Sprintf("program = 'program-%d'", i) }
	mixed := func(i int) string {
		return []string{programs(i), fmt.Sprintf("program = '/opt/*/x-%d'", i), fmt.Sprintf("command = '*--job=%d*'", i), fmt.Sprintf("unit = 'x-%d'", i)}[i%4]
	}
	for name, condition := range map[string]func(int) string{"programs": programs, "mixed": mixed} {
		for _, n := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s-%d", name, n), func(b *testing.B) {
				var text strings.Builder
				for i := range n {
					fmt.Fprintf(&text, "[[rule]]\n%s\nup = '1MB/s'\n", condition(i))
				}
				list, err := rules.Parse("f", []byte(text.String()), rules.Context{})
				if err != nil {
					b.Fatal(err)
				}
				resolver, err := identity.New(identity.Options{})
				if err != nil {
					b.Fatal(err)
				}
				s := New(Options{Resolver: resolver, Host: new(memory), Now: time.Now})
				s.system.set = rules.Compile(list)
				for b.Loop() {
					s.executed(b.Context(), enforce.Exec{PID: os.Getpid()})
				}
			})
		}
	}
}
