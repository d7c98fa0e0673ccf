// Picture makes docs/terminal.svg, the picture of a terminal in README.md:
//
//	make picture                        # runs plx on test hosts, keeps the screen, draws it
//	go run ./internal/picture -draw     # only draws docs/terminal.ansi again
//
// The picture is of a real run: a shell in tmux runs the commands of [session] on two hosts of
// package testhosts. docs/terminal.ansi is what the screen showed at the end, with its colours.
// The run needs root, tmux and python3-torch. To draw it needs none of them.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	draw := flag.Bool("draw", false, "draw docs/terminal.ansi, and run nothing")
	flag.Parse()
	if err := run(*draw, "docs"); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(draw bool, folder string) error {
	screen := filepath.Join(folder, "terminal.ansi")
	if !draw {
		if err := record(screen); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(screen)
	if err != nil {
		return err
	}
	picture, err := paint(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", screen, err)
	}
	return os.WriteFile(filepath.Join(folder, "terminal.svg"), []byte(picture), 0o644)
}
