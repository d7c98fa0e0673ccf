package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
	"github.com/plx-run/plx/launcher/exit"
)

// typed reports whether a flag was given on the command line, rather than by a default of
// the user's.
func typed(ctx *cli.Context, flag string) bool {
	return ctx.IsSet(flag) && ctx.App.Metadata[flag] == nil
}

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

// longName is the longest name of a flag, by which defaults call it.
func longName(f cli.Flag) string {
	return slices.MaxFunc(f.Names(), func(a, b string) int { return len(a) - len(b) })
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

// setting is a row of plx config.
type setting struct {
	Command string   `json:"command"`
	Flag    string   `json:"flag"`
	Values  []string `json:"values"`
	From    string   `json:"from"`
}

func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "show the defaults that you have set for flags, and where",
		Description: "A variable PLX_NAME sets the flag --name of every command that has it, such as\n" +
			"PLX_HOSTS=resources.txt or PLX_START_TIMEOUT=10m; a flag that may be repeated takes a value\n" +
			"on each line. --rank has none, because tasks get a PLX_RANK of their own.\n\n" +
			"$XDG_CONFIG_HOME/plx/config.toml, normally ~/.config/plx/config.toml, or the file that\n" +
			"$PLX_CONFIG names, sets them too, for all commands or for one:\n\n" +
			"   hosts = \"resources.txt\"\n\n" +
			"   [launch]\n" +
			"   lease = \"60s\"\n" +
			"   env   = [\"WANDB_MODE=offline\", \"OMP_NUM_THREADS=4\"]\n\n" +
			"The command line is preferred to variables, these to a command's table, and that to keys\n" +
			"for all commands. Names of files are as on the command line: from the current folder.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: config,
	}
}

func config(ctx *cli.Context) error {
	if err := noArguments(ctx); err != nil {
		return err
	}
	d, err := readDefaults(ctx.App)
	if err != nil {
		return err
	}
	rows := []setting{}
	for _, c := range ctx.App.VisibleCommands() {
		for _, name := range flagNames(ctx.App)[c.Name] {
			s, err := d.Of(c.Name, name)
			if err != nil {
				return wrongDefault(ctx.App, err)
			}
			if s != nil {
				rows = append(rows, setting{c.Name, name, s.Values, s.From})
			}
		}
	}
	if ctx.Bool("json") {
		return json.NewEncoder(ctx.App.Writer).Encode(rows)
	}
	return printSettings(ctx, rows)
}

func printSettings(ctx *cli.Context, rows []setting) error {
	if len(rows) == 0 {
		path, err := defaults.Path()
		if err == nil {
			_, err = fmt.Fprintf(ctx.App.ErrWriter, "plx: no defaults are set: %s sets none, and no PLX_ variable does (plx help config)\n", path)
		}
		return err
	}
	w := tabwriter.NewWriter(ctx.App.Writer, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "COMMAND\tFLAG\tVALUE\tFROM") // the error comes with Flush
	for i, r := range rows {
		same := func(s setting) bool { return s.Flag == r.Flag && s.From == r.From }
		if slices.ContainsFunc(rows[:i], same) {
			continue
		}
		if slices.ContainsFunc(rows[i+1:], same) {
			r.Command = "all"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Command, dashed(r.Flag), strings.Join(r.Values, ", "), r.From)
	}
	return w.Flush()
}
