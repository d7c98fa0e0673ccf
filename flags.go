package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/plx-run/plx/gpuprobe"
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
		&cli.StringFlag{Name: "via", Usage: "reach the hosts by `COMMAND` instead of SSH, such as 'docker exec -i {host}'"},
		&cli.StringFlag{Name: "color", Value: "auto", Usage: "`WHEN` to use colour: auto, always or never"},
	), more...)
}

// probeFlag is the flag of commands that look for GPUs.
func probeFlag() cli.Flag {
	return &cli.DurationFlag{Name: "probe-timeout", Value: gpuprobe.DefaultToolTime, Usage: "wait `TIME` for each answer of nvidia-smi, which is slow without persistence mode"}
}

// probeTime reads the flag of probeFlag. Commands without it have 0.
func probeTime(ctx *cli.Context) (time.Duration, error) {
	limit := ctx.Duration("probe-timeout")
	if ctx.IsSet("probe-timeout") && (limit < time.Second || limit > gpuprobe.DefaultToolTime) {
		return 0, exit.Mistake(fmt.Errorf("--probe-timeout %v: want 1s to %v", limit, gpuprobe.DefaultToolTime), "leave it out to wait for a minute")
	}
	return limit, nil
}

// verboseFlag is the flag of commands that show a job while it runs.
func verboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "print plans and cost tables too; plx logs always does"}
}

// stampsFlag is the flag of commands that print the lines of tasks.
func stampsFlag() cli.Flag {
	return &cli.BoolFlag{Name: "timestamps", Usage: "begin each line of a task with the time at which its host received it, in UTC"}
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

// lineHint is the hint for a line of hosts, unless its mistake has one of its own.
const lineHint = `a line is a host and its GPU ids, such as "gpu01: 0,1", or a host alone; docs/resource-file.md has all forms`

// reach reads the flags of reachFlags. It returns no error if no host is named.
func reach(ctx *cli.Context) (hosts.Reach, error) {
	r := hosts.Reach{AcceptNewHostKeys: ctx.Bool("accept-new-host-keys"), Via: ctx.String("via")}
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
			return r, exit.Mistake(err, lineHint)
		}
	}
	if len(r.Hosts) == 0 && !typed(ctx, "via") { // a default concerns hosts that are named
		r.Via = ""
	}
	r.Hosts, err = choose(ctx, r.Hosts)
	return r, err
}

// choose returns those of the hosts that --include and --exclude leave.
func choose(ctx *cli.Context, all []hostfile.Host) ([]hostfile.Host, error) {
	include, exclude := ctx.StringSlice("include"), ctx.StringSlice("exclude")
	switch {
	case len(include)+len(exclude) == 0:
		return all, nil
	case len(all) == 0:
		return nil, exit.Mistake(errors.New("--include and --exclude need --hosts or --host"), "add --hosts FILE, or --host LINE for each host")
	}
	all, err := hostfile.Filter(all, include, exclude)
	if err != nil {
		return nil, exit.Mistake(err, "--include gpu01 means all of a host, --exclude gpu01:0,1 two of its GPUs")
	}
	return all, nil
}

// fileReach reads the resource file alone.
func fileReach(ctx *cli.Context) (hosts.Reach, error) {
	r := hosts.Reach{AcceptNewHostKeys: ctx.Bool("accept-new-host-keys"), Via: ctx.String("via")}
	if !ctx.IsSet("hosts") {
		return r, nil
	}
	if ctx.String("hosts") == "" {
		return r, empty("hosts")
	}
	var err error
	if r.Hosts, err = hostfile.ParseFile(ctx.String("hosts")); err != nil {
		return r, exit.Mistake(err, lineHint)
	}
	return r, nil
}

// terminal describes plx's outputs.
func (c *command) terminal(ctx *cli.Context) (console.Terminal, error) {
	mode := ctx.String("color")
	if mode != "auto" && mode != "always" && mode != "never" {
		return console.Terminal{}, exit.Mistake(fmt.Errorf("--color %s: want auto, always or never", mode), "--color auto")
	}
	t := console.Terminal{Stdout: c.stdout, Stderr: c.stderr,
		StdoutTTY: term.IsTerminal(int(c.stdout.Fd())), StderrTTY: term.IsTerminal(int(c.stderr.Fd()))}
	if t.StdoutTTY {
		t.Width, _, _ = term.GetSize(int(c.stdout.Fd())) // 0 if it is not known
	}
	t.Dumb, t.Sixteen = os.Getenv("TERM") == "dumb", logs.Sixteen(os.Environ())
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

// pattern reads a regular expression flag.
func pattern(ctx *cli.Context, name string) (*regexp.Regexp, error) {
	if ctx.String(name) == "" {
		return nil, nil
	}
	re, err := regexp.Compile(ctx.String(name))
	if err != nil {
		return nil, exit.Mistake(fmt.Errorf("--%s: %w", name, err), "for the text itself: --%s '%s'", name, regexp.QuoteMeta(ctx.String(name)))
	}
	return re, nil
}

// local reads --local HOSTSxWORKERS.
func local(text string) (hosts, workers int, err error) {
	hosts, workers, ok := numbers(text, "x")
	if !ok || hosts < 1 || workers < 1 || hosts > 256 || workers > 256 {
		return 0, 0, exit.Mistake(fmt.Errorf("--local %s: want HOSTSxWORKERS, such as 2x1, with 1 to 256 hosts", text), "--local 2x1")
	}
	return hosts, workers, nil
}

// sizeText is a number with the unit of a size.
var sizeText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?:([KMGT])?(I?B)?)$`)
})

// logLimit reads --log-limit SIZE, as a number of bytes; 0 means no limit.
func logLimit(text string) (int64, error) {
	if text == "none" {
		return 0, nil
	}
	m := sizeText().FindStringSubmatch(strings.ToUpper(text))
	if m == nil {
		return 0, exit.Mistake(fmt.Errorf("--log-limit %s: want a size, such as 500MiB or 2GiB, or none", text), "--log-limit 1GiB")
	}
	unit := 1024.0
	if m[2] != "" && m[3] == "B" {
		unit = 1000
	}
	number, _ := strconv.ParseFloat(m[1], 64) // the pattern has no others
	bytes := number * math.Pow(unit, float64(1+strings.Index("KMGT", m[2])))
	if m[2] == "" {
		bytes = number
	}
	switch {
	case bytes == 0:
		return 0, nil
	case bytes < logs.MinLimit:
		return 0, exit.Mistake(fmt.Errorf("--log-limit %s is too small, at least 1MiB is needed", text), "--log-limit 1MiB, or none for no limit")
	case bytes > math.MaxInt64/2:
		return 0, exit.Mistake(fmt.Errorf("--log-limit %s is larger than any disk", text), "--log-limit none")
	}
	return int64(bytes), nil
}

// nic reads --nic NAME.
func nic(ctx *cli.Context) (string, error) {
	if !ctx.IsSet("nic") {
		return "", nil
	}
	if err := hostfile.CheckInterface(ctx.String("nic")); err != nil {
		return "", exit.Mistake(fmt.Errorf("--nic: %w", err), "--nic NAME, such as --nic eth0")
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
		return 0, 0, exit.Mistake(fmt.Errorf("--port-range %s: want LOW-HIGH, such as 20000-20100", text), "--port-range 20000-20100")
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
