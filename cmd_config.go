package main

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/console"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "show the value of every flag, and where it was set",
		Description: "A variable PLX_NAME sets the flag --name of every command that has it, such as\n" +
			"PLX_HOSTS=resources.txt or PLX_START_TIMEOUT=10m; a flag that may be repeated takes a value\n" +
			"on each line. --rank has none, because tasks get a PLX_RANK of their own,\n" +
			"and --all of plx prune has neither a variable nor a key.\n\n" +
			"$XDG_CONFIG_HOME/plx/config.toml, normally ~/.config/plx/config.toml, or the file that\n" +
			"$PLX_CONFIG names, sets them too, for all commands or for one:\n\n" +
			"   hosts = \"~/resources.txt\"\n\n" +
			"   [launch]\n" +
			"   lease = \"60s\"\n" +
			"   env   = [\"WANDB_MODE=offline\", \"OMP_NUM_THREADS=4\"]\n\n" +
			"The command line is preferred to variables, these to a command's table, and that to keys\n" +
			"for all commands. In names of files ~ is your home; others are as on the command line,\n" +
			"from the current folder. Nothing runs while a name or a value is wrong.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: config,
	}
}

// setting is one row that plx config prints: the value of a flag for one
// command.
type setting struct {
	Command string   `json:"command"`
	Flag    string   `json:"flag"`
	Values  []string `json:"values"`
	From    string   `json:"from"` // source of the value: a variable, a line of a file, "default" or "none"
}

func config(ctx *cli.Context) error {
	if err := noArguments(ctx); err != nil {
		return err
	}
	d, err := readDefaults(ctx.App)
	if err != nil {
		return err
	}
	var rows []setting
	for _, c := range ctx.App.VisibleCommands() {
		for _, f := range c.Flags {
			if f == cli.HelpFlag {
				continue
			}
			row := setting{Command: c.Name, Flag: longName(f), Values: []string{}, From: "none"}
			if s := d.Of(c.Name, row.Flag); s != nil {
				row.Values, row.From = s.Values, s.From
			} else if value := defaultValue(f.(cli.DocGenerationFlag)); value != "" {
				row.Values, row.From = []string{value}, "default"
			}
			rows = append(rows, row)
		}
	}
	to := console.Terminal{Stdout: ctx.App.Writer}
	if ctx.Bool("json") {
		return json.NewEncoder(to.JSON()).Encode(rows)
	}
	return printSettings(to, rows)
}

// printSettings prints the flags that the user has set, and then the other
// flags. Commands for which a flag has the same value share a row.
func printSettings(to console.Terminal, rows []setting) error {
	table := console.NewTable("COMMAND", "FLAG", "VALUE", "FROM")
	for _, set := range []bool{true, false} {
		for i, r := range rows {
			same := func(s setting) bool { return s.Flag == r.Flag && s.From == r.From && slices.Equal(s.Values, r.Values) }
			if isSet := r.From != "default" && r.From != "none"; isSet == set && !slices.ContainsFunc(rows[:i], same) {
				table.Row(commandsOf(rows, r.Flag, same), dashed(r.Flag), cmp.Or(strings.Join(r.Values, ", "), "-"), r.From)
			}
		}
	}
	return table.Write(to)
}

// commandsOf returns the names of the commands that share a row of the table
// for a flag. If most commands share the row, it returns "all but" and the
// names of the others. same reports whether a setting belongs to the row.
func commandsOf(rows []setting, flag string, same func(setting) bool) string {
	var names, others []string
	for _, r := range rows {
		if same(r) {
			names = append(names, r.Command)
		} else if r.Flag == flag {
			others = append(others, r.Command)
		}
	}
	switch {
	case len(names) > 1 && len(others) == 0:
		return "all"
	case len(names) > 2 && len(names) > len(others):
		return "all but " + strings.Join(others, ", ")
	}
	return strings.Join(names, ", ")
}
