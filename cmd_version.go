package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"
)

// A release sets these by flags of the linker. Without them commit and date are those that
// go build has recorded, if it has.
var (
	version = "dev"
	commit  = ""
	date    = "" // of the commit, RFC 3339
)

// versionCommand is "plx version".
func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print version, commit and date of this plx",
		Action: func(ctx *cli.Context) error {
			_, err := fmt.Fprintln(ctx.App.Writer, versionLine())
			return err
		},
	}
}

// versionLine is version, commit, its date, Go's version and the platform. What the
// build did not record is left out.
func versionLine() string {
	var parts []string
	recorded, number := map[string]string{}, version
	if info, ok := debug.ReadBuildInfo(); ok {
		if number == "dev" && strings.HasPrefix(info.Main.Version, "v") { // go install
			number = info.Main.Version
		}
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
	}
	if recorded["vcs.modified"] == "true" {
		recorded["vcs.revision"] += " with changes"
	}
	if commit := cmp.Or(commit, recorded["vcs.revision"]); commit != "" {
		parts = append(parts, "commit "+commit)
	}
	if date := cmp.Or(date, recorded["vcs.time"]); date != "" {
		parts = append(parts, date)
	}
	parts = append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return "plx " + number + " (" + strings.Join(parts, ", ") + ")"
}
