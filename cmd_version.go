package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"
)

// Release builds and "make build" set these variables with -ldflags. In any
// other build, commit and date come from the version control data that go
// build records, if there are any.
var (
	version = "dev"
	commit  = ""
	date    = "" // date of the commit in RFC 3339 format; empty: unknown
)

// versionCommand returns the command "plx version".
func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print version, commit and date of this plx",
		Action: func(ctx *cli.Context) error {
			_, err := fmt.Fprintln(ctx.App.Writer, versionLine())
			return err
		},
	}
}

// versionLine returns the text that plx version prints: version, commit, date
// of the commit, Go version and platform. Unknown parts are left out. Commit
// and date always come from the same source.
func versionLine() string {
	var parts []string
	recorded, number := map[string]string{}, version
	if info, ok := debug.ReadBuildInfo(); ok {
		if number == "dev" && strings.HasPrefix(info.Main.Version, "v") { // "go install MODULE@VERSION" sets the version of the main module.
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
