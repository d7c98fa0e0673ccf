package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
	"github.com/plx-run/plx/launcher/exit"
)

// setDefaults applies the user's defaults (PLX_ variables and the
// configuration file): it sets each flag that has a default there and is not
// on the command line.
func setDefaults(ctx *cli.Context) error {
	d, err := readDefaults(ctx.App)
	if err != nil {
		return err
	}
	for _, f := range ctx.Command.Flags {
		name := longName(f)
		if ctx.IsSet(name) {
			if want, right := wrongValue(f, ctx.String(name)); choices(f) != nil && want != "" {
				return wrongValueError(f, name, ctx.String(name), want, right)
			}
			continue
		}
		s := d.Of(ctx.Command.Name, name)
		if s == nil {
			continue
		}
		for _, value := range s.Values {
			if err := ctx.Set(name, value); err != nil {
				return fmt.Errorf("%s: %w", s.From, err)
			}
		}
		ctx.App.Metadata[name] = s.From
	}
	return nil
}

// withSource adds the source of a flag's value, such as the line of the
// configuration file, to an error about that flag. It does so only if the
// value comes from the user's defaults (PLX_ variables and the configuration
// file).
func withSource(app *cli.App, err error) error {
	flag, is := strings.CutPrefix(err.Error(), "--")
	if end := strings.IndexAny(flag, " :="); is && end > 0 && app.Metadata[flag[:end]] != nil {
		return fmt.Errorf("%s: %w", app.Metadata[flag[:end]], err)
	}
	return err
}

// readDefaults reads and checks the user's defaults for flags: PLX_ variables
// and the configuration file.
func readDefaults(app *cli.App) (*defaults.Defaults, error) {
	path, err := defaults.Path()
	if err != nil {
		return nil, err
	}
	d, err := defaults.Read(path, allFlags(app))
	if err != nil {
		return nil, withSuggestion(err)
	}
	for _, stray := range d.Strays() {
		if suggestion := likeVariable(stray, d.Variables()); suggestion != "" {
			return nil, exit.Mistake(fmt.Errorf("$%s: plx has no such variable", stray), "%s? plx help config", suggestion)
		}
	}
	return d, nil
}

// likeVariable returns the variable of plx with a name similar to stray, or ""
// if there is none. Other programs may use variables that begin with PLX_ too,
// so only a close match counts.
func likeVariable(stray string, known []string) string {
	var names []string
	for _, name := range known {
		if longer := len(name) - len(stray); -2 <= longer && longer <= 2 {
			names = append(names, strings.TrimPrefix(name, "PLX_"))
		}
	}
	if suggestion := closest(strings.TrimPrefix(stray, "PLX_"), names, 0.85); suggestion != "" {
		return "PLX_" + suggestion
	}
	return ""
}

// allFlags returns the flags of all commands for which a user may set
// defaults.
func allFlags(app *cli.App) defaults.Flags {
	all := defaults.Flags{}
	for _, c := range app.VisibleCommands() {
		all[c.Name] = map[string]defaults.Flag{}
		for _, f := range c.Flags {
			if f == cli.HelpFlag {
				continue
			}
			multi, _ := f.(cli.DocGenerationSliceFlag)
			_, yesNo := f.(*cli.BoolFlag)
			all[c.Name][longName(f)] = defaults.Flag{
				Repeatable: multi != nil && multi.IsSliceFlag(), Switch: yesNo, Path: slices.Contains(pathWords, valueWord(f)), CommandTableOnly: c.Name == "logs" && longName(f) == linesOut || c.Name == "launch" && longName(f) == "json", CommandLineOnly: c.Name == "prune" && longName(f) == "all",
				Wrong: func(value string) (string, string) { return wrongValue(f, value) },
			}
		}
	}
	return all
}

// withSuggestion adds a hint to an error in the user's defaults (PLX_
// variables and the configuration file): the known name that is most similar
// to the wrong one.
func withSuggestion(err error) error {
	m, named := errors.AsType[*defaults.Mistake](err)
	if !named {
		return err
	}
	suggestion := ""
	if alike := closest(m.Name, m.Known, 0.8); alike != "" {
		suggestion = alike + "? "
	}
	return exit.Mistake(err, "%splx help config", suggestion)
}
