// Package partition decides how the rows of a table are cut and who owns the
// pieces: where to cut so that every piece travels about as often, which
// owner gets which piece, and, by measuring, how many pieces are best.
//
//	h := partition.NewHistogram(100_000)
//	h.Add(rows)                                  // every step: rows that travelled
//	bounds := partition.Cut(100_000, 16, 0, h.Counts())
//	owners := partition.Assign(partition.Loads(bounds, h.Counts()), make([]float64, servers))
//
//	s := partition.NewSearch(servers, 1, 256)
//	for p, more := s.Next(); more; p, more = s.Next() {
//		... cut in p pieces, train some steps, take their times ...
//		s.Add(p, times)                      // or s.Skip(p, "ps:1 has no room")
//	}
//	result := s.Result()                         // result.P, result.Lines(), result.Plot(file)
//
// # The search
//
// It goes the way of Parallax (Kim et al., EuroSys'19, the section on
// partitioning): double from the start while steps get faster, then halve from
// the start, then fit t(P) = c + b/P + a*P, whose minimum is at sqrt(b/a). A
// time is the median of the steps; differences within the uncertainty of the
// medians, and of at most 5 %, are ties, and a tie goes to the smaller P. Where the fit promises
// more between the samples than they have shown, its minimum is measured too;
// nothing is chosen that was not measured.
//
// # What it refuses
//
// It moves no rows and measures no time: that is its caller's work. It knows
// counts by bucket and not by row: a single row that is hotter than a piece
// should be stays in one piece.
package partition
