package shell

import _ "embed"

// These snippets are for the start of a shell. Each defines the function, and makes the shell rewrite lines by
// `netnice shell-line` as they are entered.
var (
	//go:embed init.bash
	bashInit string
	//go:embed init.zsh
	zshInit string
	//go:embed init.fish
	fishInit string
)

// Dialects returns the dialects by the names of the shells.
func Dialects() map[string]Dialect { return map[string]Dialect{"bash": Bash, "zsh": Zsh, "fish": Fish} }

// Init returns the snippet that a shell evaluates at its start.
func Init(d Dialect) string {
	return map[Dialect]string{Bash: bashInit, Zsh: zshInit, Fish: fishInit}[d]
}
