package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/jobs"
)

// Completion candidates that stand for names of files or directories. The
// shell completion scripts replace these words by such names.
const (
	files   = ":files"
	folders = ":folders"
)

// complete implements "plx __complete", which the shell completion scripts
// run. words are the words after plx, and the last is the word to complete.
// Each returned candidate is a word, a tab and a description.
func complete(app *cli.App, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	last := words[len(words)-1]
	return slices.DeleteFunc(candidates(app, words[:len(words)-1], last), func(c string) bool {
		return c != files && c != folders && !strings.HasPrefix(c, last)
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
	line := commandLine{app, cmd, nil, map[string]string{}}
	flag, ended := line.read(words[1:])
	name, value, given := strings.Cut(last, "=")
	switch {
	case ended && takesProgram(cmd):
		return []string{files}
	case ended:
		return line.arguments(last)
	case flag != "":
		return line.values(flag, last)
	case given && strings.HasPrefix(last, "-"):
		with := line.values(strings.TrimLeft(name, "-"), value)
		for i, v := range with {
			if v != files && v != folders {
				with[i] = name + "=" + v
			}
		}
		return with
	case strings.HasPrefix(last, "-"):
		return flagWords(cmd)
	}
	return line.arguments(last)
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

// commandLine holds the arguments and flags typed so far after a command.
type commandLine struct {
	app   *cli.App
	cmd   *cli.Command
	args  []string          // the command's arguments that are not flags
	flags map[string]string // maps the name of each flag, as typed, to its value
}

// read parses words. It returns the flag whose value comes next, or "". ended
// reports that the next words cannot be flags of plx, because they belong to a
// program or follow "--".
func (l *commandLine) read(words []string) (flag string, ended bool) {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case word == "--":
			l.args = append(l.args, words...)
			return "", true
		case len(word) < 2 || word[0] != '-':
			if l.args = append(l.args, word); takesProgram(l.cmd) {
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

// values returns candidates for the value of a flag.
func (l *commandLine) values(flag, last string) []string {
	f := flagOf(l.cmd, flag)
	if f == nil {
		return nil
	}
	return l.placeholderCandidates(valueWord(f), last)
}

// arguments returns candidates for the next argument of the command.
func (l *commandLine) arguments(last string) []string {
	words := strings.Fields(strings.NewReplacer("[", "", "]", "", "...", "").Replace(l.cmd.ArgsUsage))
	switch n := len(l.args); {
	case takesProgram(l.cmd):
		return []string{files}
	case n >= len(words):
		return nil
	case words[n] == "COMMAND":
		return commandWords(l.app)
	default:
		return l.placeholderCandidates(words[n], last)
	}
}

// placeholderCandidates returns candidates for a placeholder of the help text, such as FILE or
// JOB.
func (l *commandLine) placeholderCandidates(word, last string) (all []string) {
	for word := range strings.SplitSeq(word, "|") {
		switch word {
		case "FILE", "FILE-OR-FOLDER":
			all = append(all, files)
		case "DIR":
			all = append(all, folders)
		case "JOB":
			all = append(all, jobWords(false)...)
		case "RUNNING-JOB":
			all = append(all, jobWords(true)...)
		case "HOSTS", "HOST[:IDS]", "LINE":
			all = append(all, l.hosts(word, last)...)
		case "ROLE:INDEX":
			all = append(all, l.tasks()...)
		case "RANK":
			for _, task := range l.tasks() {
				if rank, worker := strings.CutPrefix(task, "worker:"); worker {
					all = append(all, rank)
				}
			}
		default:
			if !isName(word) {
				all = append(all, word)
			}
		}
	}
	return all
}

// jobWords returns the ids and names of jobs as candidates, the newest job
// first. If running is true it leaves out jobs that are known to have ended.
func jobWords(running bool) (words []string) {
	records, _ := jobs.Records() // after an error there are no candidates
	for _, r := range slices.Backward(records) {
		about := "\t" + r.Program + ", " + r.Created.Local().Format("2 January 15:04")
		for _, word := range []string{r.Job, r.Name} {
			known := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, word+"\t") })
			if word != "" && !known && (r.Verdict == nil || !running) {
				words = append(words, word+about)
			}
		}
	}
	return words
}

// record returns the record of the job that the first argument names, or of
// the newest job if there is no argument.
func (l *commandLine) record() (jobs.Record, bool) {
	records, _ := jobs.Records() // after an error no job is found
	for _, r := range slices.Backward(records) {
		if len(l.args) == 0 || r.Job == l.args[0] || r.Name == l.args[0] {
			return r, true
		}
	}
	return jobs.Record{}, false
}

// tasks returns the names of the job's tasks, such as worker:0.
func (l *commandLine) tasks() (names []string) {
	r, _ := l.record()
	for _, h := range r.Hosts {
		names = append(names, h.Tasks...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hosts returns candidates for a placeholder of the help text that stands for
// hosts. The candidates come from the resource file. Without a resource file,
// they come from the record of the job. After "HOST:", the candidates are the
// host's device ids. In a comma-separated list, hosts completes the item after
// the last comma.
func (l *commandLine) hosts(word, last string) (names []string) {
	before := last[:strings.LastIndex(last, ",")+1]
	host, _, devices := strings.Cut(last, ":")
	for _, h := range l.knownHosts() {
		switch {
		case word == "HOST[:IDS]" && devices && h.Name == host:
			for _, id := range h.Devices.IDs {
				names = append(names, cmp.Or(before, host+":")+string(id))
			}
		case word == "HOSTS":
			names = append(names, before+h.Name)
		default:
			names = append(names, h.Name)
		}
	}
	return names
}

func (l *commandLine) knownHosts() (found []hostfile.Host) {
	file := l.flags["hosts"]
	if d, err := readDefaults(l.app); err == nil && file == "" {
		if s := d.Of(l.cmd.Name, "hosts"); s != nil {
			file = s.Values[0]
		}
	}
	if file != "" {
		found, _ = hostfile.ParseFile(defaults.ExpandHome(file)) // a file that cannot be parsed gives no candidates
		return found
	}
	r, _ := l.record()
	for _, h := range r.Hosts {
		host, _ := hostfile.ParseLines([]string{h.Line}) // a line that cannot be parsed gives no candidate
		found = append(found, host...)
	}
	return found
}
