//! The tokens that a file's post-processor adds before and after a text.

use serde_json::Value;

use super::parts::{ReadError, is, kind, unsupported};

/// Ids before and behind a text.
pub(super) fn special_prefix_suffix(part: &Value) -> Result<(Vec<i64>, Vec<i64>), ReadError> {
    match kind(part) {
        _ if part.is_null() => Ok((vec![], vec![])),
        "ByteLevel" if is(part, "trim_offsets", false) => Ok((vec![], vec![])),
        "ByteLevel" => unsupported("post_processor ByteLevel, unless trim_offsets is false"),
        "TemplateProcessing" => template(part),
        "Sequence" => {
            let steps = part.get("processors").and_then(Value::as_array);
            let is_template = |step: &&Value| kind(step) == "TemplateProcessing";
            let steps = || steps.into_iter().flatten();
            if steps().filter(is_template).count() > 1 {
                return unsupported(
                    "post_processor Sequence with more than one TemplateProcessing",
                );
            }
            for step in steps().filter(|step| !is_template(step)) {
                if kind(step) == "Sequence" {
                    return unsupported("post_processor Sequence inside a Sequence");
                }
                special_prefix_suffix(step)?;
            }
            steps()
                .find(is_template)
                .map_or(Ok((vec![], vec![])), template)
        }
        other => unsupported(format!("post_processor {other}")),
    }
}

fn template(part: &Value) -> Result<(Vec<i64>, Vec<i64>), ReadError> {
    let (mut prefix, mut suffix, mut texts) = (vec![], vec![], 0);
    for piece in part
        .get("single")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(text) = piece.get("Sequence") {
            if text.get("id").and_then(Value::as_str) != Some("A") {
                return unsupported(
                    "post_processor TemplateProcessing whose \"single\" has a second text",
                );
            }
            texts += 1;
            continue;
        }
        let ids = piece
            .get("SpecialToken")
            .and_then(|token| token.get("id"))
            .and_then(Value::as_str)
            .and_then(|name| {
                part.get("special_tokens")?
                    .get(name)?
                    .get("ids")?
                    .as_array()
            })
            .and_then(|ids| ids.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>());
        match ids {
            Some(ids) if texts == 0 => prefix.extend(ids),
            Some(ids) => suffix.extend(ids),
            None => {
                return unsupported(
                    "post_processor TemplateProcessing with a special token that has no ids",
                );
            }
        }
    }
    if texts == 1 {
        Ok((prefix, suffix))
    } else {
        unsupported(format!(
            "post_processor TemplateProcessing whose \"single\" has the text {texts} times, expected once"
        ))
    }
}
