package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"

	"github.com/plx-run/plx/launcher/exit"
)

// wrongUse returns the error for a wrong flag, with a short hint. Package cli
// would print the whole help instead.
func wrongUse(ctx *cli.Context, err error, _ bool) error {
	text := err.Error()
	if name, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		return unknownFlagError(ctx, name)
	}
	if !ofCommand(ctx) {
		return exit.Mistake(err, "plx help lists the commands")
	}
	if name, missing := strings.CutPrefix(text, "flag needs an argument: -"); missing {
		return exit.Mistake(fmt.Errorf("%s needs a value", dashed(name)), "%s %s; plx help %s", dashed(name), valueWord(flagOf(ctx.Command, name)), ctx.Command.Name)
	}
	m := badValue().FindStringSubmatch(text)
	if m == nil {
		return exit.Mistake(err, "plx help %s", ctx.Command.Name)
	}
	value, name := m[1], m[2]
	if want, right := wrongValue(flagOf(ctx.Command, name), value); want != "" {
		return wrongValueError(flagOf(ctx.Command, name), name, value, want, right)
	}
	return exit.Mistake(err, "plx help %s", ctx.Command.Name)
}

// wrongValueError returns the error for a wrong value of flag f. want describes the
// allowed values, and right is an example.
func wrongValueError(f cli.Flag, name, value, want, right string) error {
	if _, yesNo := f.(*cli.BoolFlag); yesNo {
		return exit.Mistake(fmt.Errorf("%s=%s: want no value, or true or false", dashed(name), value), "%s alone, or leave it out", dashed(name))
	}
	return exit.Mistake(fmt.Errorf("%s %s: %s", dashed(name), value, want), "%s %s", dashed(name), right)
}

// badValue matches the error of package flag for a value that it cannot parse.
var badValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^invalid (?:boolean )?value "([^"]*)" for (?:flag )?-([a-z-]+):`)
})

// ofCommand reports whether ctx belongs to a command of plx, such as "plx
// launch". It is false if ctx belongs to plx itself.
func ofCommand(ctx *cli.Context) bool {
	return ctx.Command != nil && ctx.Command.Name != "" && ctx.Command.Name != "plx"
}

func unknownCommand(ctx *cli.Context) error {
	if ctx.NArg() == 0 {
		return cli.ShowAppHelp(ctx)
	}
	return unknownCommandError(ctx, ctx.Args().First())
}

// unknownCommandError returns the error for an unknown command. Its hint suggests a
// similar command.
func unknownCommandError(ctx *cli.Context, name string) error {
	if slices.Contains(launchers, name) {
		return exit.Mistake(fmt.Errorf("no command %q", name), "plx launch replaces %s; plx help launch lists its flags", name)
	}
	suggestion := ""
	if ours, known := synonyms()[name]; known {
		suggestion = fmt.Sprintf("plx %s? ", ours)
	} else if alike := closest(name, commandNames(ctx.App), 0.8); alike != "" {
		suggestion = fmt.Sprintf("plx %s? ", alike)
	} else if isLocal(name) {
		suggestion = "plx launch " + name + "? "
	}
	return exit.Mistake(fmt.Errorf("no command %q", name), "%splx help lists them", suggestion)
}

// isLocal reports whether name is the path of an existing file or directory
// and contains a slash.
func isLocal(name string) bool {
	_, err := os.Stat(name)
	return err == nil && strings.Contains(name, "/")
}

func commandNames(app *cli.App) (names []string) {
	for _, c := range app.VisibleCommands() {
		names = append(names, c.Name)
	}
	return names
}

// unknownFlagError returns the error for an unknown flag. Its hint suggests a similar
// flag.
func unknownFlagError(ctx *cli.Context, name string) error {
	if !ofCommand(ctx) {
		return exit.Mistake(fmt.Errorf("plx has no flag %s", dashed(name)), "flags come after the command: plx COMMAND [FLAGS]; plx help lists the commands")
	}
	wrong := fmt.Errorf("plx %s has no flag %s", ctx.Command.Name, dashed(name))
	if suggestion := foreignFlagHint(ctx, name); suggestion != "" {
		return exit.Mistake(wrong, "%s; plx help %s lists plx's flags", suggestion, ctx.Command.Name)
	}
	var names []string
	for _, f := range ctx.Command.Flags {
		names = append(names, f.Names()...)
	}
	suggestion := ""
	if alike := closest(name, names, 0.8); alike != "" {
		suggestion = dashed(alike) + "? "
	}
	return exit.Mistake(wrong, "%splx help %s lists them", suggestion, ctx.Command.Name)
}

// closest returns the element of names that is most similar to name, or "" if
// no similarity is above least.
func closest(name string, names []string, least float64) string {
	best, found := least, ""
	for _, n := range names {
		// 0.7 and 4 are the usual parameters of the Jaro-Winkler similarity.
		if likeness := smetrics.JaroWinkler(name, n, 0.7, 4); likeness > best {
			best, found = likeness, n
		}
	}
	return found
}

func noArguments(ctx *cli.Context) error {
	if ctx.NArg() == 0 {
		return nil
	}
	args := strings.Join(ctx.Args().Slice(), " ")
	wrong := fmt.Errorf("%s takes no arguments, not %s", ctx.Command.Name, args)
	if info, err := os.Stat(args); err == nil && info.Mode().IsRegular() && flagOf(ctx.Command, "hosts") != nil {
		return exit.Mistake(wrong, "plx %s --hosts %s", ctx.Command.Name, args)
	}
	return exit.Mistake(wrong, "plx %s, or plx help %[1]s for its flags", ctx.Command.Name)
}

// oneJob returns an error if there are several arguments, or an empty one.
// Without an argument the command takes the newest job; an empty argument
// probably comes from an unset shell variable.
func oneJob(ctx *cli.Context) error {
	name := ctx.Command.Name
	switch {
	case ctx.NArg() > 1:
		return exit.Mistake(fmt.Errorf("one job at most, not %s", strings.Join(ctx.Args().Slice(), " ")), "plx %s %s", name, ctx.Args().First())
	case ctx.NArg() == 1 && ctx.Args().First() == "":
		return exit.Mistake(errors.New("the name of the job is empty"), "an unset shell variable? plx %s alone takes the newest job, plx jobs lists all", name)
	}
	return nil
}
