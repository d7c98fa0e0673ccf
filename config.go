package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
	"github.com/plx-run/plx/launcher/exit"
)

// setDefaults sets the flags that the command line leaves out to the user's defaults.
func setDefaults(ctx *cli.Context) error {
	d, err := readDefaults(ctx.App)
	if err != nil {
		return err
	}
	for _, f := range ctx.Command.Flags {
		name := longName(f)
		if f == cli.HelpFlag || ctx.IsSet(name) {
			continue
		}
		s, err := d.Of(ctx.Command.Name, name)
		if err != nil {
			return wrongDefault(ctx.App, err)
		}
		if s == nil {
			continue
		}
		for _, value := range s.Values {
			if err := ctx.Set(name, value); err != nil {
				return exit.Mistake(fmt.Errorf("%s: --%s %q: want a value as on the command line, such as 90s, 3 or true", s.From, name, value), "plx help %s", ctx.Command.Name)
			}
		}
		ctx.App.Metadata[name] = s.From
	}
	return nil
}

// readDefaults reads the user's defaults and checks them.
func readDefaults(app *cli.App) (*defaults.Defaults, error) {
	path, err := defaults.Path()
	if err != nil {
		return nil, err
	}
	d, err := defaults.Read(path)
	if err == nil {
		err = d.Check(flagNames(app))
	}
	if err != nil {
		return nil, wrongDefault(app, err)
	}
	return d, nil
}

// flagNames are the long names of all flags, by command.
func flagNames(app *cli.App) map[string][]string {
	all := map[string][]string{}
	for _, c := range app.VisibleCommands() {
		for _, f := range c.Flags {
			if f != cli.HelpFlag {
				all[c.Name] = append(all[c.Name], longName(f))
			}
		}
	}
	return all
}

// wrongDefault adds to a mistake of the user's defaults what was probably meant.
func wrongDefault(app *cli.App, err error) error {
	meant := ""
	if m := (*defaults.Mistake)(nil); errors.As(err, &m) && m.Name != "" {
		names := commandNames(app)
		for _, flags := range flagNames(app) {
			names = append(names, flags...)
		}
		if alike := closest(m.Name, names); alike != "" && alike != m.Name {
			meant = alike + "? "
		}
	}
	return exit.Mistake(err, "%splx help config", meant)
}
