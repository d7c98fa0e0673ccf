package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"
)

// A release and make build set these by flags of the linker. Without them commit and date are
// those that go build has recorded, if it has.
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

// versionLine is version, commit, its date, Go's version and the platform. What is not
// known is left out. Commit and date come from one source.
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
	from, made := commit, date
	if commit == "" {
		from, made = recorded["vcs.revision"], recorded["vcs.time"]
		if recorded["vcs.modified"] == "true" {
			from += " with changes"
		}
	}
	if from != "" {
		parts = append(parts, "commit "+from)
	}
	if made != "" {
		parts = append(parts, made)
	}
	parts = append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return "plx " + number + " (" + strings.Join(parts, ", ") + ")"
}
