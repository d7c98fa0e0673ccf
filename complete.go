package main

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/jobs"
)

// files stands among candidates for the names of files, which the shell knows best.
const files = ":files"

// complete is what the scripts call with the words of a command line behind plx, of which
// the last one is to be completed. A candidate is a word, and behind a tab what it is.
func complete(app *cli.App, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	last := words[len(words)-1]
	return slices.DeleteFunc(candidates(app, words[:len(words)-1], last), func(c string) bool {
		return c != files && !strings.HasPrefix(c, last)
	})
}

func candidates(app *cli.App, words []string, last string) []string {
	if len(words) == 0 {
		return commandWords(app)
	}
	cmd := app.Command(words[0])
	if cmd == nil {
		return nil
	}
	line := commandLine{cmd, nil, map[string]string{}}
	flag, ended := line.read(words[1:])
	switch name, _, value := strings.Cut(last, "="); {
	case ended: // what follows is for the program, or an argument
		return []string{files}
	case flag != "":
		return line.values(flag)
	case value && strings.HasPrefix(last, "--"):
		with := line.values(strings.TrimLeft(name, "-"))
		for i, v := range with {
			with[i] = name + "=" + v
		}
		return slices.DeleteFunc(with, func(v string) bool { return strings.HasSuffix(v, "="+files) })
	case strings.HasPrefix(last, "-"):
		return flagWords(cmd)
	}
	if cmd.Name == "help" && len(words) == 1 {
		return commandWords(app)
	}
	return line.arguments()
}

func commandWords(app *cli.App) (words []string) {
	for _, c := range app.VisibleCommands() {
		words = append(words, c.Name+"\t"+c.Usage)
	}
	return words
}

func flagWords(cmd *cli.Command) (words []string) {
	for _, f := range cmd.VisibleFlags() {
		_, usage, _ := flagHelp(f.(cli.DocGenerationFlag))
		words = append(words, dashed(longName(f))+"\t"+usage)
	}
	return words
}

// commandLine is what was typed so far behind a command.
type commandLine struct {
	cmd   *cli.Command
	args  []string          // arguments
	flags map[string]string // values, by the names that were typed
}

// read takes words. It returns the flag whose value is to come, and whether all that is
// to come belongs to a program.
func (l *commandLine) read(words []string) (flag string, ended bool) {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case word == "--":
			return "", true
		case !strings.HasPrefix(word, "-"):
			if l.args = append(l.args, word); l.cmd.Name == "launch" || l.cmd.Name == "exec" {
				return "", true
			}
		case given:
			l.flags[name] = value
		case takesNext(l.cmd, word) && len(words) == 0:
			return name, false
		case takesNext(l.cmd, word):
			l.flags[name], words = words[0], words[1:]
		}
	}
	return "", false
}

// values are candidates for the value of a flag.
func (l *commandLine) values(flag string) []string {
	switch flag {
	case "color":
		return []string{"auto", "always", "never"}
	case "ps":
		return append([]string{"auto", "all", "none"}, l.hosts()...)
	case "visible":
		return []string{"auto", "own", "host"}
	case "include", "exclude", "host":
		return l.hosts()
	case "task":
		return l.tasks()
	case "rank":
		var ranks []string
		for _, task := range l.tasks() {
			if rank, worker := strings.CutPrefix(task, "worker:"); worker {
				ranks = append(ranks, rank)
			}
		}
		return ranks
	case "resume":
		return jobWords()
	case "hosts", "env-file", "copy", "log-dir", "workdir", "venv", "fetch":
		return []string{files}
	}
	return nil
}

// arguments are candidates for the next argument.
func (l *commandLine) arguments() []string {
	switch n := len(l.args); {
	case l.cmd.Name == "launch", l.cmd.Name == "fetch" && n == 1:
		return []string{files}
	case n > 0:
		return nil
	case slices.Contains([]string{"logs", "attach", "scale", "stop", "fetch"}, l.cmd.Name):
		return jobWords()
	case l.cmd.Name == "completion":
		return shells
	}
	return nil
}

// jobWords are the ids of all jobs, and the names of those that have one; the newest
// comes first.
func jobWords() (words []string) {
	records, _ := jobs.Records() // without them there is nothing to complete
	slices.Reverse(records)
	for _, r := range records {
		about := "\t" + r.Program + ", " + r.Created.Local().Format("2 January 15:04")
		for _, word := range []string{r.Job, r.Name} {
			if word != "" && !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, word+"\t") }) {
				words = append(words, word+about)
			}
		}
	}
	return words
}

// record is that of the job that was named, or of the newest one.
func (l *commandLine) record() (jobs.Record, bool) {
	records, _ := jobs.Records() // as in jobWords
	for _, r := range slices.Backward(records) {
		if len(l.args) == 0 || r.Job == l.args[0] || r.Name == l.args[0] {
			return r, true
		}
	}
	return jobs.Record{}, false
}

// tasks are those of the job.
func (l *commandLine) tasks() (names []string) {
	r, _ := l.record()
	for _, h := range r.Hosts {
		names = append(names, h.Tasks...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hosts are those of the job, or of the resource file where no job is meant.
func (l *commandLine) hosts() (names []string) {
	var found []hostfile.Host
	if file := cmp.Or(l.flags["hosts"], os.Getenv(defaults.Variable("hosts"))); file != "" {
		found, _ = hostfile.ParseFile(file) // a file with mistakes completes nothing
	} else if r, ok := l.record(); ok && l.cmd.Name == "logs" {
		for _, h := range r.Hosts {
			host, _ := hostfile.ParseLines([]string{h.Line}) // as above
			found = append(found, host...)
		}
	}
	for _, h := range found {
		names = append(names, h.Name)
	}
	return names
}
