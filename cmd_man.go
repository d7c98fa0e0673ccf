package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
)

// manCommand returns the hidden command "plx man DIR", which the release
// scripts use to write the manual pages.
func manCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "write the manual pages into a folder", ArgsUsage: "DIR", Hidden: true,
		Action: func(ctx *cli.Context) error {
			if ctx.NArg() != 1 {
				return exit.Mistake(errors.New("plx man: want a folder for the pages"), "plx man DIR")
			}
			dir := ctx.Args().First()
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			pages := map[string]string{"plx.1": overview(ctx.App)} // pages maps the file name of each manual page to its text in Markdown.
			for _, c := range ctx.App.VisibleCommands() {
				pages["plx-"+c.Name+".1"] = manPage(c)
			}
			for name, page := range pages {
				if err := os.WriteFile(filepath.Join(dir, name), md2man.Render([]byte(page)), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
