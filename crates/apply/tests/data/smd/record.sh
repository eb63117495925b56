#!/bin/sh
# Records what structured-merge-diff does in its own tests: record.sh FOLDER-OF-THE-MODULE > merge.jsonl
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cp -r "$1/." "$work" && chmod -R u+w "$work"
cp "$here/record.go" "$work/internal/fixture/"
sed -i 's/^func (tc TestCase) TestWithConverter(.*{$/&\n\trecord(tc, parser, converter)/' "$work/internal/fixture/state.go"
(cd "$work/merge" && RECORD="$work/cases" go test -count=1 . >&2)
# Tables of tests are maps there: their order is another one each time.
sort -u "$work/cases"
rm -rf "$work"
