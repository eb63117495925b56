#!/bin/sh
# Records what structured-merge-diff does in its own tests: record.sh FOLDER-OF-THE-MODULE > merge.jsonl
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cp -r "$1/." "$work" && chmod -R u+w "$work"
cp "$here/record.go" "$work/internal/fixture/"
cp "$here/random_test.go" "$work/merge/"
sed -i 's/^func (tc TestCase) TestWithConverter(.*{$/&\n\trecord(tc, parser, converter)/' "$work/internal/fixture/state.go"
(cd "$work/merge" && RECORD="$work/cases" RANDOM_CASES=${RANDOM_CASES:-60} go test -count=3 . >&2)
# What depends on the order of Go's maps is not the same three times, and left out.
sort "$work/cases" | uniq -c | awk '$1 % 3 == 0' | sed 's/^ *[0-9]* //'
rm -rf "$work"
