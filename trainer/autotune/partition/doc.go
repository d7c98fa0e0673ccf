// Package partition decides how the rows of a table are cut and which shard
// holder gets which piece: it cuts so that every piece travels about as often,
// and finds by measuring how many pieces are best.
//
//	h := partition.NewHistogram(100_000)
//	h.Add(rows)                                  // every step: rows that travelled
//	bounds := partition.Cut(100_000, 16, 0, h.Counts())
//	holders := partition.Assign(partition.Loads(bounds, h.Counts()), make([]float64, servers))
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
// medians, and of at most 5 %, are ties, and a tie goes to the smaller P. If the
// fit promises a shorter time than the samples have, the search measures its
// minimum too. It chooses nothing that it did not measure.
//
// # What it refuses
//
// It moves no rows and measures no time: its caller does. It knows counts by bucket
// and not by row: a row that travels more often than a piece should stays in one
// piece.
package partition
