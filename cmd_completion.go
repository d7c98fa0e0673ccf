package main

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
)

//go:embed completion
var completions embed.FS

// shells lists the shells for which plx completion has a script.
var shells = []string{"bash", "zsh", "fish"}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that completes plx's command lines in a shell", ArgsUsage: "bash|zsh|fish",
		Description: "bash:  echo 'source <(plx completion bash)' >>~/.bashrc\n" +
			"zsh:   echo 'source <(plx completion zsh)' >>~/.zshrc\n" +
			"fish:  mkdir -p ~/.config/fish/completions\n" +
			"       plx completion fish >~/.config/fish/completions/plx.fish\n\n" +
			"Commands, flags and values are completed, files and folders of this machine, and jobs,\n" +
			"their tasks and hosts as far as it remembers them. No host is connected to.",
		Action: func(ctx *cli.Context) error {
			if ctx.NArg() != 1 || !slices.Contains(shells, ctx.Args().First()) {
				return exit.Mistake(fmt.Errorf("plx completion: want one of %s", strings.Join(shells, ", ")), "plx completion bash; plx help completion tells where to put it")
			}
			script, err := completions.ReadFile("completion/plx." + ctx.Args().First())
			if err == nil {
				_, err = ctx.App.Writer.Write(script)
			}
			return err
		},
	}
}
