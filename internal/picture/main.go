// Picture makes docs/terminal.svg, the picture of a terminal in README.md:
//
//	make picture                        # runs plx on test hosts, keeps what it printed, draws it
//	go run ./internal/picture -draw     # only draws docs/terminal.ansi again
//
// The picture is of a real run: a shell runs the commands of [session] on a
// pseudo-terminal, against two hosts of package testhosts. docs/terminal.ansi
// keeps every byte that arrived there, and docs/terminal.svg is what stays on
// the screen. To run the session needs root and python3-torch, to draw it needs
// neither.
//
// The package refuses control sequences that it does not know, because it would
// draw them wrongly.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	draw := flag.Bool("draw", false, "draw docs/terminal.ansi, and run nothing")
	out := flag.String("out", "docs", "folder of terminal.ansi and terminal.svg")
	flag.Parse()
	if err := run(*draw, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(draw bool, folder string) error {
	capture := filepath.Join(folder, "terminal.ansi")
	if !draw {
		if err := record(capture); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(capture)
	if err != nil {
		return err
	}
	picture, err := paint(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", capture, err)
	}
	return os.WriteFile(filepath.Join(folder, "terminal.svg"), []byte(picture), 0o644)
}

// paint returns the picture of a terminal that has got text.
func paint(text string) (string, error) {
	s := newScreen(columns)
	if err := s.write(text); err != nil {
		return "", err
	}
	return s.svg(), nil
}
