// Picture makes the pictures of terminals in README.md and docs/watch.md:
//
//	make picture                        # runs plx on test hosts, keeps the screens, draws them
//	scripts/tool internal/tools/picture top       # only docs/top.svg
//	scripts/tool internal/tools/picture -draw     # runs nothing, only draws docs/*.ansi again
//
// The pictures show real runs: for each scene, a shell in tmux runs commands
// on two test hosts (package testhosts). docs/NAME.ansi is the content of the
// screen with its colors. docs/report.png is a screenshot, made with Chromium,
// of a report on two runs. The runs need root, tmux and python3-torch; drawing
// needs none of these.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	draw := flag.Bool("draw", false, "draw docs/*.ansi, and run nothing")
	flag.Parse()
	if err := run(*draw, "docs", flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// run makes the pictures with the given names, or all pictures if names is
// empty. If draw is true, it only draws the stored screens again.
func run(draw bool, folder string, names []string) error {
	for _, name := range names {
		if name == reportName {
			continue
		}
		if !slices.ContainsFunc(scenes, func(s scene) bool { return s.name == name }) {
			return fmt.Errorf("no picture has the name %q", name)
		}
	}
	for _, s := range scenes {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		screen := filepath.Join(folder, s.name+".ansi")
		if !draw {
			if err := s.record(screen); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		text, err := os.ReadFile(screen)
		if err != nil {
			return err
		}
		picture, err := s.paint(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", screen, err)
		}
		if err := os.WriteFile(filepath.Join(folder, s.name+".svg"), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	if !draw && (len(names) == 0 || slices.Contains(names, reportName)) {
		return report(filepath.Join(folder, reportName+".png"))
	}
	return nil
}
