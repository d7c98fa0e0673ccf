package metrics

import "bytes"

// maxName bounds the name of a value, in bytes.
const maxName = 64

// kind is what a name stands for.
type kind int

const (
	other    kind = iota // nothing of a training, as far as its name says
	value                // a metric
	position             // steps made
	weak                 // steps made, if the number of all steps follows
	total                // steps to be made
	epoch
	epochs
)

// kindOf returns what a name stands for, in any case.
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

// fold writes a name in lower case to a buffer of its length or more. A longer name loses
// its end.
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

// measures reports whether a word names what trainings measure.
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

// qualifies reports whether a word before a name is a part of it, as in "val loss".
func qualifies(word []byte) bool {
	var buf [maxName]byte
	switch string(fold(buf[:], word)) {
	case "train", "training", "val", "valid", "validation", "test", "eval", "evaluation", "dev",
		"mean", "avg", "average", "total", "running", "lm", "grad", "gradient", "learning":
		return true
	}
	return false
}

// unfit reports whether a member of a record, or a part of a progress bar, is no metric
// although it is a number.
func unfit(name string) bool {
	switch name {
	case "time", "timestamp", "ts", "t", "date", "asctime", "created", "relativecreated", "msecs", "eta", "elapsed", "uptime", "_timestamp", "_runtime",
		"pid", "ppid", "tid", "thread", "process", "port", "line", "lineno", "level", "levelno", "v_num", "version", "seed",
		"rank", "local_rank", "global_rank", "node_rank", "world_size":
		return true
	}
	return false
}

// validName reports whether a name is one that a value may have.
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

// named is a name in the text of a line.
type named struct {
	word      []byte // in the line; empty: there is none
	qualifier []byte // the word before it that is a part of it; empty: there is none
	kind      kind
	joined    bool // = or : lies between name and value
	bracket   bool // [ lies between name and value
}

// text returns the name of the value.
func (n named) text() string {
	if unit := perSecond(lower(n.word)); unit != "" {
		return unit
	}
	if len(n.qualifier) > 0 {
		return string(lower(n.qualifier)) + "_" + string(lower(n.word))
	}
	return string(lower(n.word))
}

// nameBefore returns the name of the value at i, such as loss of "loss: 0.31".
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

// hasTensor reports whether a text ends in the type of a value, such as tensor( of PyTorch
// or tf.Tensor( of TensorFlow.
func hasTensor(t []byte) bool {
	return bytes.HasSuffix(t, []byte("ensor(")) || bytes.HasSuffix(t, []byte("np.float32(")) || bytes.HasSuffix(t, []byte("np.float64("))
}

// wordBefore returns the name that ends at i; empty: there is none.
func wordBefore(t []byte, i int) []byte {
	j := i
	for j > 0 && class[t[j-1]]&inName != 0 {
		if j--; i-j > maxName {
			return nil
		}
	}
	for j < i && !isLetter(t[j]) && t[j] != '_' { // --loss, ./loss
		j++
	}
	return t[j:i]
}

// lower returns a copy of a name in lower case.
func lower(name []byte) []byte { return bytes.ToLower(name) }
