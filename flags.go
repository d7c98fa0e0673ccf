package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/slurm"
)

// reachFlags returns the flags that choose hosts, the flags that decide how to
// connect to them, --color, and the flags in more.
func reachFlags(more ...cli.Flag) []cli.Flag {
	return append(group("Hosts",
		&cli.StringFlag{Name: "hosts", Usage: "resource `FILE` of hosts and GPU ids"},
		&cli.StringSliceFlag{Name: "host", Usage: "one `LINE` as in a resource file; repeatable"},
		&cli.StringSliceFlag{Name: "include", Usage: "only `HOST[:IDS]`; repeatable"},
		&cli.StringSliceFlag{Name: "exclude", Usage: "not `HOST[:IDS]`; repeatable"},
		&cli.BoolFlag{Name: "accept-new-host-keys", Usage: "accept and record the key of a host that known_hosts does not list"},
		&cli.StringFlag{Name: "via", Usage: "reach the hosts by `COMMAND` instead of SSH, such as 'docker exec -i {host}'"},
		&cli.StringFlag{Name: "color", Value: "auto", Usage: "use colour: `auto|always|never`"},
	), more...)
}

// targetFlags returns the flags of reachFlags and --no-slurm. They are for
// commands that run on the hosts that the flags name or, within a Slurm
// allocation, on its nodes.
func targetFlags(more ...cli.Flag) []cli.Flag {
	all := reachFlags()
	return slices.Concat(all, group("Hosts", &cli.BoolFlag{Name: "no-slurm", Usage: "ignore the Slurm allocation that plx runs in"}), more)
}

// probeFlag returns the flag for commands that list the GPUs of hosts.
func probeFlag() cli.Flag {
	return &cli.DurationFlag{Name: "probe-timeout", Value: gpuprobe.DefaultToolTime, Usage: "wait `TIME` for each answer of nvidia-smi, which is slow without persistence mode"}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "write JSON"} }

// verboseFlag returns the flag -v, for commands that follow a running job.
func verboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "print plans and cost tables too; plx logs always does"}
}

// stampsFlag returns --timestamps, for commands that print the output of
// tasks.
func stampsFlag() cli.Flag {
	return &cli.BoolFlag{Name: "timestamps", Usage: "begin each line of a task with the time at which its host received it, in UTC"}
}

// prefixFlag returns --no-prefix, for commands that print the output of tasks.
func prefixFlag() cli.Flag {
	return &cli.BoolFlag{Name: "no-prefix", Usage: "print the lines of tasks without task and host before them"}
}

// statusFlag returns --no-status, for commands that follow a running job.
func statusFlag() cli.Flag {
	return &cli.BoolFlag{Name: "no-status", Usage: "show no status line at the bottom of the terminal"}
}

// notifyFlag returns --notify, for commands that run until a job ends.
func notifyFlag() cli.Flag {
	return &cli.StringFlag{Name: "notify", Usage: "when the job hangs and when it has ended, run shell `COMMAND` on this machine with PLX_EVENT, PLX_VERDICT and others in its environment: see docs/launching.md"}
}

// taskFlags returns the flags that choose the tasks whose output is printed.
func taskFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "task", Usage: "show only `ROLE:INDEX`, such as worker:3 or 'worker:*'; repeatable"},
		&cli.IntSliceFlag{Name: "rank", Usage: "show only the worker of `RANK`, such as 0; repeatable"},
	}
}

// probeTime returns the value of --probe-timeout. It is 0 for commands without
// this flag.
func probeTime(ctx *cli.Context) (time.Duration, error) {
	limit := ctx.Duration("probe-timeout")
	if ctx.IsSet("probe-timeout") && (limit < time.Second || limit > gpuprobe.DefaultToolTime) {
		return 0, exit.Mistake(fmt.Errorf("--probe-timeout %v: want 1s to %v", limit, gpuprobe.DefaultToolTime), "leave it out to wait for a minute")
	}
	return limit, nil
}

// shownTasks returns the tasks that --task and --rank choose.
func shownTasks(ctx *cli.Context) []string {
	tasks := slices.Clone(ctx.StringSlice("task"))
	for _, rank := range ctx.IntSlice("rank") {
		tasks = append(tasks, fmt.Sprintf("worker:%d", rank))
	}
	return tasks
}

// lineHint is the hint for a malformed host line, unless the error has a hint
// of its own.
const lineHint = `a line is a host and its GPU ids, such as "gpu01: 0,1", or a host alone; docs/resource-file.md has all forms`

// reach returns the hosts that the flags of reachFlags choose. It is no error
// if they name no host.
func reach(ctx *cli.Context) (hosts.Reach, error) {
	r := hosts.Reach{AcceptNewHostKeys: ctx.Bool("accept-new-host-keys"), Via: ctx.String("via")}
	var err error
	// --host on the command line overrides --hosts from the user's defaults
	// (PLX_ variables and configuration file).
	if !typed(ctx, "host") || typed(ctx, "hosts") {
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
	if len(r.Hosts) == 0 && !typed(ctx, "via") { // --via from the user's defaults has no meaning without hosts
		r.Via = ""
	}
	r.Hosts, err = choose(ctx, r.Hosts)
	return r, err
}

// hostNames returns the names of those hosts in chosen that --host names.
func hostNames(ctx *cli.Context, chosen []hostfile.Host) (names []string, err error) {
	all, err := hostfile.ParseLines(ctx.StringSlice("host"))
	if err != nil {
		return nil, exit.Mistake(err, lineHint)
	}
	for _, h := range all {
		if slices.ContainsFunc(chosen, func(c hostfile.Host) bool { return c.Name == h.Name }) {
			names = append(names, h.Name)
		}
	}
	return names, nil
}

// choose returns the hosts in all that --include and --exclude select.
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

// fileReach returns the hosts of the resource file that --hosts names. It does
// not read --host.
func fileReach(ctx *cli.Context) (hosts.Reach, error) {
	r := hosts.Reach{AcceptNewHostKeys: ctx.Bool("accept-new-host-keys"), Via: ctx.String("via")}
	if !ctx.IsSet("hosts") {
		return r, nil
	}
	if ctx.String("hosts") == "" {
		return r, emptyValue("hosts")
	}
	var err error
	if r.Hosts, err = hostfile.ParseFile(ctx.String("hosts")); err != nil {
		return r, exit.Mistake(err, lineHint)
	}
	return r, nil
}

// target returns the hosts that the flags of targetFlags choose. If the
// command line names no host and plx runs in a Slurm allocation, target
// returns the nodes of the allocation and the Slurm job. In every other case
// the job is nil. Hosts in the user's defaults do not override the allocation.
func target(ctx *cli.Context) (hosts.Reach, *slurm.Job, error) {
	r, job, err := chosenHosts(ctx)
	if err == nil {
		r.ProbeTime, err = probeTime(ctx)
	}
	return r, job, err
}

// chosenHosts returns the same hosts and Slurm job as target. Unlike target,
// it does not read --probe-timeout.
func chosenHosts(ctx *cli.Context) (hosts.Reach, *slurm.Job, error) {
	named := slices.ContainsFunc([]string{"hosts", "host", "via", "local"}, func(flag string) bool { return typed(ctx, flag) })
	if named || ctx.Bool("no-slurm") {
		r, err := reach(ctx)
		return r, nil, err
	}
	job, err := slurm.Current(os.Getenv)
	if err != nil {
		return hosts.Reach{}, nil, err
	}
	if job == nil {
		r, err := reach(ctx)
		return r, nil, err
	}
	r := hosts.Reach{Slurm: job.Run}
	if ctx.Bool("dry-run") {
		r.Hosts, err = job.Known(context.Background())
	} else {
		r.Hosts, err = job.Hosts(context.Background())
	}
	if err == nil {
		r.Hosts, err = choose(ctx, r.Hosts)
	}
	return r, job, err
}

// pattern compiles the regular expression that a flag has as its value. It
// returns nil if the flag is not set.
func pattern(ctx *cli.Context, name string) (*regexp.Regexp, error) {
	if ctx.String(name) == "" {
		return nil, nil
	}
	return compiled(name, ctx.String(name))
}

// patterns compiles the regular expressions of a repeatable flag into one,
// which matches if any of them does. It returns nil if the flag is not set.
func patterns(ctx *cli.Context, name string) (*regexp.Regexp, error) {
	var all []string
	for _, text := range ctx.StringSlice(name) {
		if text == "" {
			continue // ignore an empty value, as the function pattern does
		}
		if _, err := compiled(name, text); err != nil {
			return nil, err
		}
		all = append(all, "(?:"+text+")")
	}
	if len(all) == 0 {
		return nil, nil
	}
	return compiled(name, strings.Join(all, "|"))
}

func compiled(flag, text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, exit.Mistake(fmt.Errorf("--%s: %w", flag, err), "for the text itself: --%s '%s'", flag, regexp.QuoteMeta(text))
	}
	return re, nil
}

// nic returns the value of --nic, a network interface, or "".
func nic(ctx *cli.Context) (string, error) {
	if !ctx.IsSet("nic") {
		return "", nil
	}
	if err := hostfile.CheckInterface(ctx.String("nic")); err != nil {
		return "", exit.Mistake(fmt.Errorf("--nic: %w", err), "--nic NAME, such as --nic eth0")
	}
	return ctx.String("nic"), nil
}

// portRange parses the value of --port-range, LOW-HIGH. For an empty text it
// returns 0 and 0.
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

// numbers parses two integers with the text sign between them, such as 2x1.
func numbers(text, sign string) (a, b int, ok bool) {
	before, after, _ := strings.Cut(text, sign)
	a, err1 := strconv.Atoi(before)
	b, err2 := strconv.Atoi(after)
	return a, b, err1 == nil && err2 == nil
}

// emptyValue returns the error for a flag whose value is an empty string.
func emptyValue(flag string) error {
	return exit.Mistake(fmt.Errorf("--%s: the name is empty", flag), "an unset shell variable? leave --%s out, or name something", flag)
}

// typed reports whether the flag is on the command line. It is false if the
// value comes from a PLX_ variable or the configuration file.
func typed(ctx *cli.Context, flag string) bool {
	return ctx.IsSet(flag) && ctx.App.Metadata[flag] == nil
}

// longName returns the longest name of a flag. The configuration file and
// environment variables use this name.
func longName(f cli.Flag) string {
	return slices.MaxFunc(f.Names(), func(a, b string) int { return len(a) - len(b) })
}

// flagOf returns the flag of cmd that has the given name, or nil.
func flagOf(cmd *cli.Command, name string) cli.Flag {
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// takesProgram reports whether the first argument of cmd is a program, so that
// all following words are arguments of that program.
func takesProgram(cmd *cli.Command) bool { return strings.HasSuffix(cmd.ArgsUsage, "[ARGS...]") }

// flagsFirst moves the flags in args before the other arguments, so that "plx
// logs JOB --task worker:3" works. It changes nothing if the command takes a
// program, whose arguments may look like flags.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	cmd := app.Command(args[1])
	if cmd == nil || takesProgram(cmd) {
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

// asksEvents reports whether args is a plx launch with --json. It parses args
// itself, because the error that plx must report as JSON may come from parsing
// the flags. It stops at the program, whose own arguments may include --json.
func asksEvents(app *cli.App, args []string) bool {
	if len(args) < 2 || args[1] != "launch" {
		return false
	}
	for rest := args[2:]; len(rest) > 0 && strings.HasPrefix(rest[0], "-") && rest[0] != "--"; rest = rest[1:] {
		if slices.Contains([]string{"-json", "--json", "--json=true"}, rest[0]) {
			return true
		}
		if len(rest) > 1 && takesNext(app.Command("launch"), rest[0]) {
			rest = rest[1:]
		}
	}
	return false
}

// takesNext reports whether arg is a flag of cmd whose value is the next
// argument.
func takesNext(cmd *cli.Command, arg string) bool {
	doc, ok := flagOf(cmd, strings.TrimLeft(arg, "-")).(cli.DocGenerationFlag)
	return ok && doc.TakesValue()
}
