package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
)

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

// setting is a row of plx config.
type setting struct {
	Command string   `json:"command"`
	Flag    string   `json:"flag"`
	Values  []string `json:"values"`
	From    string   `json:"from"`
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
