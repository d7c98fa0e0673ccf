package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/logs"
)

// reachFlags tell which hosts are meant, how to reach them, and when to use colour.
func reachFlags(more ...cli.Flag) []cli.Flag {
	return append(group("Hosts",
		&cli.StringFlag{Name: "hosts", Usage: "resource `FILE` of hosts and GPU ids"},
		&cli.StringSliceFlag{Name: "host", Usage: "one `LINE` as in a resource file; repeatable"},
		&cli.StringSliceFlag{Name: "include", Usage: "only `HOST[:IDS]`; repeatable"},
		&cli.StringSliceFlag{Name: "exclude", Usage: "not `HOST[:IDS]`; repeatable"},
		&cli.BoolFlag{Name: "accept-new-host-keys", Usage: "record the key of a host that has none on record"},
		&cli.StringFlag{Name: "color", Value: "auto", Usage: "`WHEN` to use colour: auto, always or never"},
	), more...)
}

// verboseFlag is the flag of commands that show a job while it runs.
func verboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "print plans and cost tables too; plx logs always does"}
}

// taskFlags choose tasks whose output is shown.
func taskFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "task", Usage: "show only `ROLE:INDEX`, such as worker:3 or 'worker:*'; repeatable"},
		&cli.IntSliceFlag{Name: "rank", Usage: "show only the worker of rank `N`; repeatable"},
	}
}

// shownTasks reads the flags of taskFlags.
func shownTasks(ctx *cli.Context) []string {
	tasks := slices.Clone(ctx.StringSlice("task"))
	for _, rank := range ctx.IntSlice("rank") {
		tasks = append(tasks, fmt.Sprintf("worker:%d", rank))
	}
	return tasks
}

// reach reads the flags of reachFlags. It returns no error if no host is named.
func reach(ctx *cli.Context) (hosts.Reach, error) {
	r := hosts.Reach{AcceptNewHostKeys: ctx.Bool("accept-new-host-keys")}
	var err error
	if !typed(ctx, "host") || typed(ctx, "hosts") { // --host takes the place of a default
		if r, err = fileReach(ctx); err != nil {
			return r, err
		}
	}
	if lines := ctx.StringSlice("host"); len(lines) > 0 {
		more, err := hostfile.ParseLines(lines)
		if err == nil {
			r.Hosts, err = hostfile.Join(r.Hosts, more)
		}
		if err != nil {
			return r, exit.Mistake(err, exit.Hint(err))
		}
	}
	include, exclude := ctx.StringSlice("include"), ctx.StringSlice("exclude")
	switch {
	case len(include)+len(exclude) == 0:
		return r, nil
	case len(r.Hosts) == 0:
		return r, exit.Mistake(errors.New("--include and --exclude need --hosts or --host"), "")
	}
	if r.Hosts, err = hostfile.Filter(r.Hosts, include, exclude); err != nil {
		return r, exit.Mistake(err, exit.Hint(err))
	}
	return r, nil
}

// fileReach reads the resource file alone.
func fileReach(ctx *cli.Context) (hosts.Reach, error) {
	r := hosts.Reach{AcceptNewHostKeys: ctx.Bool("accept-new-host-keys")}
	if !ctx.IsSet("hosts") {
		return r, nil
	}
	if ctx.String("hosts") == "" {
		return r, exit.Mistake(errors.New("--hosts: the name of the file is empty"), "an unset shell variable?")
	}
	var err error
	if r.Hosts, err = hostfile.ParseFile(ctx.String("hosts")); err != nil {
		return r, exit.Mistake(err, exit.Hint(err))
	}
	return r, nil
}

// terminal describes plx's outputs.
func (c *command) terminal(ctx *cli.Context) (console.Terminal, error) {
	mode := ctx.String("color")
	if mode != "auto" && mode != "always" && mode != "never" {
		return console.Terminal{}, exit.Mistake(fmt.Errorf("--color %s: want auto, always or never", mode), "")
	}
	t := console.Terminal{Stdout: c.stdout, Stderr: c.stderr,
		StdoutTTY: term.IsTerminal(int(c.stdout.Fd())), StderrTTY: term.IsTerminal(int(c.stderr.Fd()))}
	t.Dumb = os.Getenv("TERM") == "dumb"
	t.StdoutColour = logs.UseColour(mode, t.StdoutTTY, os.Getenv)
	t.StderrColour = logs.UseColour(mode, t.StderrTTY, os.Getenv)
	return t, nil
}

// query reads the first argument and the flags that name a job.
func (c *command) query(ctx *cli.Context) (jobs.Query, error) {
	r, err := reach(ctx)
	if err != nil {
		return jobs.Query{}, err
	}
	t, err := c.terminal(ctx)
	return jobs.Query{Job: ctx.Args().First(), Reach: r, OnHosts: typed(ctx, "host") || typed(ctx, "hosts"), Terminal: t}, err
}

func noArguments(ctx *cli.Context) error {
	if ctx.NArg() == 0 {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s takes no arguments, not %s", ctx.Command.Name, strings.Join(ctx.Args().Slice(), " ")), "plx "+ctx.Command.Name+" --help")
}

// oneJob refuses several jobs, and an empty name. Without an argument the newest job is
// meant, but an empty one comes from an unset shell variable.
func oneJob(ctx *cli.Context) error {
	switch {
	case ctx.NArg() > 1:
		return exit.Mistake(fmt.Errorf("one job at most, not %s", strings.Join(ctx.Args().Slice(), " ")), "")
	case ctx.NArg() == 1 && ctx.Args().First() == "":
		return exit.Mistake(errors.New("the name of the job is empty"), "an unset shell variable?")
	}
	return nil
}

func jobAndFolder(ctx *cli.Context) error {
	if ctx.NArg() != 2 || ctx.Args().First() == "" || ctx.Args().Get(1) == "" {
		return exit.Mistake(errors.New("want a job and a folder for what it has made"), "plx fetch JOB DIR")
	}
	return nil
}

// pattern reads a regular expression flag.
func pattern(ctx *cli.Context, name string) (*regexp.Regexp, error) {
	if ctx.String(name) == "" {
		return nil, nil
	}
	re, err := regexp.Compile(ctx.String(name))
	if err != nil {
		return nil, exit.Mistake(fmt.Errorf("--%s: %w", name, err), "")
	}
	return re, nil
}

// local reads --local HOSTSxWORKERS.
func local(text string) (hosts, workers int, err error) {
	hosts, workers, ok := numbers(text, "x")
	if !ok || hosts < 1 || workers < 1 || hosts > 64 || workers > 256 {
		return 0, 0, exit.Mistake(fmt.Errorf("--local %s: want HOSTSxWORKERS, such as 2x1, with 1 to 64 hosts", text), "")
	}
	return hosts, workers, nil
}

// nic reads --nic NAME.
func nic(ctx *cli.Context) (string, error) {
	if !ctx.IsSet("nic") {
		return "", nil
	}
	if err := hostfile.CheckInterface(ctx.String("nic")); err != nil {
		return "", exit.Mistake(fmt.Errorf("--nic: %w", err), exit.Hint(err))
	}
	return ctx.String("nic"), nil
}

// portRange reads --port-range LOW-HIGH.
func portRange(text string) (low, high int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	low, high, ok := numbers(text, "-")
	if !ok || low < 1 || high > 65535 || low > high {
		return 0, 0, exit.Mistake(fmt.Errorf("--port-range %s: want LOW-HIGH, such as 20000-20100", text), "")
	}
	return low, high, nil
}

// numbers reads two numbers with a sign between them.
func numbers(text, sign string) (a, b int, ok bool) {
	before, after, _ := strings.Cut(text, sign)
	a, err1 := strconv.Atoi(before)
	b, err2 := strconv.Atoi(after)
	return a, b, err1 == nil && err2 == nil
}

// flagsFirst moves the flags of every command but launch and exec before its arguments, so
// that "plx logs JOB --task worker:3" works. What follows launch's PROGRAM is for the
// program.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	cmd := app.Command(args[1])
	if cmd == nil || cmd.Name == "launch" || cmd.Name == "exec" {
		return args
	}
	flags, words := args[:2:2], []string{}
	for rest := args[2:]; len(rest) > 0; rest = rest[1:] {
		switch arg := rest[0]; {
		case arg == "--":
			return slices.Concat(flags, []string{"--"}, words, rest[1:])
		case len(arg) < 2 || arg[0] != '-':
			words = append(words, arg)
		default:
			flags = append(flags, arg)
			if len(rest) > 1 && takesNext(cmd, arg) {
				flags, rest = append(flags, rest[1]), rest[1:]
			}
		}
	}
	return append(flags, words...)
}

// takesNext reports whether the value of a flag is the next argument.
func takesNext(cmd *cli.Command, arg string) bool {
	for _, f := range cmd.Flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if ok && doc.TakesValue() && slices.Contains(f.Names(), strings.TrimLeft(arg, "-")) {
			return true
		}
	}
	return false
}
