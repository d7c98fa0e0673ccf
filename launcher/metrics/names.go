package metrics

import "bytes"

// maxName is the maximum length of a metric's name in bytes.
const maxName = 64

// kind classifies a name in the output of a program, such as loss or step.
type kind int

const (
	other    kind = iota // not a word that training programs use for their values
	value                // a metric, such as loss
	position             // number of completed steps
	weak                 // number of completed steps, but only if the total follows, as in "batch 3/100"
	total                // total number of steps
	epoch
	epochs
)

// kindOf classifies a name. Upper and lower case make no difference.
func kindOf(name []byte) kind {
	var buf [maxName]byte
	name = fold(buf[:], name)
	switch string(name) {
	case "step", "global_step", "_step", "iter", "iteration", "train/global_step", "trainer/global_step", "num_updates":
		return position
	case "it", "batch", "steps", "iters", "iterations", "update":
		return weak
	case "total_steps", "max_steps":
		return total
	case "epoch":
		return epoch
	case "epochs", "num_epochs", "max_epochs", "num_train_epochs":
		return epochs
	}
	words := 0
	for start, i := 0, 0; i <= len(name); i++ {
		if i == len(name) || !isLetter(name[i]) && !isDigit(name[i]) {
			if measures(name[start:i]) {
				return value
			}
			start, words = i+1, words+1
		}
	}
	if bytes.HasSuffix(name, []byte("loss")) || bytes.HasSuffix(name, []byte("accuracy")) ||
		words > 1 && (bytes.Contains(name, []byte("_per_s")) || perSecond(name) != "") {
		return value
	}
	return other
}

// fold writes the name in lower case to buf and returns it. It cuts off a name
// that is longer than buf.
func fold(buf, name []byte) []byte {
	n := min(len(buf), len(name))
	for i, b := range name[:n] {
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		buf[i] = b
	}
	return buf[:n]
}

// measures reports whether word, in lower case, names a quantity that training
// programs measure.
func measures(word []byte) bool {
	switch string(word) {
	case "loss", "nll", "mse", "mae", "rmse", "elbo", "kl", "entropy", "perplexity", "ppl", "bpb", "bpc",
		"acc", "accuracy", "acc1", "acc5", "top1", "top5", "precision", "recall", "f1", "auc", "auroc", "iou", "miou", "dice",
		"bleu", "rouge", "rouge1", "rouge2", "rougel", "wer", "cer", "fid", "psnr", "ssim", "reward", "score",
		"lr", "norm", "gnorm", "mfu", "throughput", "wps", "fps":
		return true
	}
	return false
}

// qualifies reports whether a word before a metric's name belongs to the name,
// such as "val" in "val loss".
func qualifies(word []byte) bool {
	var buf [maxName]byte
	switch string(fold(buf[:], word)) {
	case "train", "training", "val", "valid", "validation", "test", "eval", "evaluation", "dev",
		"mean", "avg", "average", "total", "running", "lm", "grad", "gradient", "learning":
		return true
	}
	return false
}

// unfit reports whether a value of this name is no metric, such as a time, a
// pid or a rank. It is used for dicts and progress bars, which may contain any
// names.
func unfit(name string) bool {
	switch name {
	case "time", "timestamp", "ts", "t", "date", "asctime", "created", "relativecreated", "msecs", "eta", "elapsed", "uptime", "_timestamp", "_runtime",
		"pid", "ppid", "tid", "thread", "process", "port", "line", "lineno", "level", "levelno", "v_num", "version", "seed",
		"rank", "local_rank", "global_rank", "node_rank", "world_size":
		return true
	}
	return false
}

// validName reports whether a metric may have this name.
func validName(name string) bool {
	if name == "" || len(name) > maxName || !isLetter(name[0]) {
		return false
	}
	for i := range len(name) {
		if class[name[i]]&inName == 0 {
			return false
		}
	}
	return true
}

// named is a name that precedes a number in a line.
type named struct {
	word      []byte // the name as the line has it; empty if there is none
	qualifier []byte // the word before the name if it belongs to the name, such as "val" in "val loss"; otherwise empty
	kind      kind
	joined    bool // = or : stands between name and number
	bracket   bool // [ stands between name and number
}

// text returns the name of the metric in lower case, preceded by the
// qualifier.
func (n named) text() string {
	if unit := perSecond(lower(n.word)); unit != "" {
		return unit
	}
	if len(n.qualifier) > 0 {
		return string(lower(n.qualifier)) + "_" + string(lower(n.word))
	}
	return string(lower(n.word))
}

// nameBefore returns the name that precedes the number at i, such as "loss" in
// "loss: 0.31".
func nameBefore(t []byte, i int) (n named) {
	j := skipBack(t, i)
	if j > 0 && t[j-1] == '[' {
		n.bracket, j = true, skipBack(t, j-1)
	} else if hasTensor(t[:j]) {
		for j--; j > 0 && class[t[j-1]]&inName != 0; j-- {
		}
		j = skipBack(t, j)
	}
	if j > 0 && (t[j-1] == '=' || t[j-1] == ':') {
		n.joined, j = true, skipBack(t, j-1)
		if j > 0 && (t[j-1] == '"' || t[j-1] == '\'') {
			j--
		}
	}
	if n.word = wordBefore(t, j); len(n.word) == 0 {
		return n
	}
	n.kind = kindOf(n.word)
	if start := j - len(n.word); start > 0 && t[start-1] == ' ' && (n.kind == value || string(n.word) == "rate") {
		if first := wordBefore(t, skipBack(t, start)); qualifies(first) && len(first)+len(n.word) < maxName {
			n.qualifier, n.kind = first, value
		}
	}
	return n
}

func skipBack(t []byte, i int) int {
	for i > 0 && (t[i-1] == ' ' || t[i-1] == '\t') {
		i--
	}
	return i
}

// hasTensor reports whether t ends in a type name and a parenthesis that may
// stand before a number, such as PyTorch's "tensor(".
func hasTensor(t []byte) bool {
	return bytes.HasSuffix(t, []byte("ensor(")) || bytes.HasSuffix(t, []byte("np.float32(")) || bytes.HasSuffix(t, []byte("np.float64("))
}

// wordBefore returns the name that ends at i, or an empty slice if there is
// none.
func wordBefore(t []byte, i int) []byte {
	j := i
	for j > 0 && class[t[j-1]]&inName != 0 {
		if j--; i-j > maxName {
			return nil
		}
	}
	for j < i && !isLetter(t[j]) && t[j] != '_' { // skip leading characters such as those of --loss and ./loss
		j++
	}
	return t[j:i]
}

// lower returns a copy of the name in lower case.
func lower(name []byte) []byte { return bytes.ToLower(name) }
