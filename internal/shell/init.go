package shell

import _ "embed"

// What a shell reads at its start, each defining the function and having lines rewritten
// by `netnice shell-line` as they are entered.
var (
	//go:embed init.bash
	bashInit string
	//go:embed init.zsh
	zshInit string
	//go:embed init.fish
	fishInit string
)

// Dialects by the shells' names.
func Dialects() map[string]Dialect { return map[string]Dialect{"bash": Bash, "zsh": Zsh, "fish": Fish} }

// Init is what a shell is to evaluate at its start.
func Init(d Dialect) string {
	return map[Dialect]string{Bash: bashInit, Zsh: zshInit, Fish: fishInit}[d]
}
